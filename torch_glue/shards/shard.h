// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/base/compat.h"
#include "torch_glue/shards/gradients.h"
#include "torch_glue/shards/host_memory.h"

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// The parameters and buffers of one part of a model. They are stored in pinned host memory or in a
/// file, under the tensors' own names. While the part runs they are contiguous on the device.
///
/// Threads: confined, except where stated otherwise.
class Shard {
 public:
  /// A tensor of the part. A tied weight keeps its memory in the earlier part.
  struct Member {
    at::Tensor tensor;
    bool buffer;
  };

  /// A load that has begun. Its fence is that of `later` if that is set.
  struct Loading {
    driver::Fence loaded;
    FileTraffic::Outcome later;
  };

  /// Bytes of one member on the device.
  static Bytes size_on_device(const Member& member);
  /// Bytes of one member in a file, including its gradient.
  static Bytes size_in_file(const Member& member);

  /// Copies the members' values to the host, without those in an `earlier` part. With `traffic`
  /// they go to its file, which also gets ranges for the gradients. put_back() installs them in
  /// the members.
  /// Requires: dense members.
  /// Errors: c10::Error.
  static std::unique_ptr<Shard> make(const std::vector<Member>& members,
                                     const std::vector<std::unique_ptr<Shard>>& earlier,
                                     DeviceRuntime& device,
                                     std::shared_ptr<FileTraffic> traffic);

  /// Whether a parameter, and not a buffer, is at this offset on the device. Threads: safe.
  [[nodiscard]] bool is_parameter(Bytes offset) const;

  /// Bytes on the device.
  [[nodiscard]] Bytes size() const { return size_; }

  /// Begins copying all members to `at`, allocated on `consumer`.
  /// Threads: safe.
  /// Errors: c10::Error.
  Loading load(driver::DevicePtr at, driver::Stream consumer, CopyPriority priority);

  /// Installs the values in `storage` in the members. Computations with them bring their gradients
  /// to the host.
  void put_on(const c10::Storage& storage, HostGradients& gradients);
  /// Installs the values on the host in the members.
  void put_back();

  /// Copies the buffers to the host, after work submitted to `producer`, which then waits for the
  /// copy. Buffers are small, and later loads are ordered after the stream.
  /// Errors: c10::Error.
  void keep_buffers(const c10::Storage& storage, driver::Stream producer);

  /// Blocks the host until no copy reads or writes the host memory. Threads: safe.
  void wait_for_copies();

 private:
  struct Entry {
    at::Tensor tensor;
    at::Tensor home;  // values on the host
    std::shared_ptr<HostMemory> memory;
    Bytes host_offset;
    Bytes offset;  // on the device
    Bytes size;
    bool buffer;
    std::shared_ptr<GradientWay> gradients;  // shared by tied members
    compat::NodePtr accumulator;             // on the host; null if no gradient is required
    compat::NodePtr gradient;                // while on the device, the node before the accumulator
  };

  Shard(DeviceRuntime& device, std::shared_ptr<FileTraffic> traffic)
      : device_(device), traffic_(std::move(traffic)) {}

  [[nodiscard]] const Entry* find(const at::Tensor& member) const;

  [[nodiscard]] std::shared_ptr<HostMemory> host_memory(Bytes size) const;
  Loading load_by_traffic(driver::DevicePtr at, driver::Stream consumer, CopyPriority priority);

  DeviceRuntime& device_;
  const std::shared_ptr<FileTraffic> traffic_;  // null if all is pinned
  std::vector<Entry> entries_;                  // members with memory of their own come first
  std::shared_ptr<HostMemory> own_;
  Bytes own_size_;
  Bytes size_;
};

/// Starts of `parts` consecutive, nonempty pieces of `sizes`, such that the largest piece is as
/// small as possible.
/// Requires: 1 <= parts <= sizes.size().
std::vector<std::size_t> split_by_bytes(const std::vector<std::uint64_t>& sizes, std::size_t parts);

}  // namespace spillway
