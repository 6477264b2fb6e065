// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/compat.h"
#include "torch_glue/shards/gradients.h"
#include "torch_glue/shards/host_memory.h"

#include <c10/core/Storage.h>

#include <memory>
#include <vector>

namespace spillway {

/// The parameters and buffers of one part of a model: they live in pinned host memory or in a file,
/// under the tensors' own names, and lie on the device, one after the other, while the part runs.
///
/// Threads: confined, except where it says otherwise.
class Shard {
 public:
  /// A tensor of the part. One that an earlier part has as well (a tied weight) keeps its memory
  /// there.
  struct Member {
    at::Tensor tensor;
    bool buffer;
  };

  /// A load that has begun: its fence, which is `later`'s where there is one.
  struct Loading {
    driver::Fence loaded;
    FileTraffic::Outcome later;
  };

  /// What one member takes on the device.
  static Bytes size_on_device(const Member& member);
  /// What it takes of a file, with its gradient.
  static Bytes size_in_file(const Member& member);

  /// Copies the members' values to the host, without those that an `earlier` part has: to the file
  /// of `traffic` where there is one, with places for the gradients. put_back() makes them the
  /// members' own. Requires: dense members. Errors: c10::Error.
  static std::unique_ptr<Shard> make(const std::vector<Member>& members,
                                     const std::vector<std::unique_ptr<Shard>>& earlier,
                                     DeviceRuntime& device,
                                     std::shared_ptr<FileTraffic> traffic);

  /// Whether a parameter lies at this offset on the device, and no buffer. Threads: safe.
  [[nodiscard]] bool is_parameter(Bytes offset) const;

  /// Bytes on the device.
  [[nodiscard]] Bytes size() const { return size_; }

  /// Begins copying all members to `at`, allocated on `consumer`.
  /// Threads: safe. Errors: c10::Error.
  Loading load(driver::DevicePtr at, driver::Stream consumer, CopyPriority haste);

  /// The members' values are those in `storage` from now on, and what is computed with them brings
  /// its gradients to the host.
  void put_on(const c10::Storage& storage, HostGradients& gradients);
  /// The members' values are those on the host.
  void put_back();

  /// Copies the buffers back, after what `producer` has been given, which then waits for it: they
  /// are small, and what is loaded next comes after the stream. Errors: c10::Error.
  void keep_buffers(const c10::Storage& storage, driver::Stream producer);

  /// Blocks the host until no copy reads or writes the host memory. Threads: safe.
  void wait_for_copies();

 private:
  struct Place {
    at::Tensor tensor;
    at::Tensor home;  // the values on the host
    std::shared_ptr<HostMemory> memory;
    Bytes host_offset;
    Bytes offset;  // on the device
    Bytes size;
    bool buffer;
    std::shared_ptr<GradientWay> gradients;  // tied members share it
    compat::NodePtr accumulator;             // on the host; null for what needs no gradient
    compat::NodePtr gradient;  // while it is on the device, what leads to the accumulator
  };

  Shard(DeviceRuntime& device, std::shared_ptr<FileTraffic> traffic)
      : device_(device), traffic_(std::move(traffic)) {}

  [[nodiscard]] const Place* find(const at::Tensor& member) const;

  [[nodiscard]] std::shared_ptr<HostMemory> host_memory(Bytes size) const;
  Loading load_by_traffic(driver::DevicePtr at, driver::Stream consumer, CopyPriority haste);

  DeviceRuntime& device_;
  const std::shared_ptr<FileTraffic> traffic_;  // null where all is pinned
  std::vector<Place> places_;                   // those with memory of their own first
  std::shared_ptr<HostMemory> own_;
  Bytes own_size_;
  Bytes size_;
};

}  // namespace spillway
