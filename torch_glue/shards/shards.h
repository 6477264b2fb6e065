// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/shards/gradients.h"
#include "torch_glue/shards/shard.h"
#include "torch_glue/shards/weight_casts.h"

#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace spillway {

/// A model in parts that share the device's memory in rotation. A part's weights are loaded while
/// the previous part runs, and once more for its backward pass. Only gradients and buffers are
/// copied to the host, never weights. Weights saved for the backward pass are saved as references
/// to the part, not as tensors.
///
/// Threads: run() on one thread at a time, which it checks; backward passes on any.
/// Ownership: shared by graphs and its creator. The members keep their memory on the host.
class OffloadedShards : public std::enable_shared_from_this<OffloadedShards> {
 public:
  struct Stats {
    Bytes loaded;     // weights and buffers copied to the device, since creation
    Bytes gradients;  // copied to the host
    Bytes slots;      // device memory for parts
    // parts that needed additional memory because a slot was still in use
    std::uint64_t extra_slots = 0;
  };

  /// Moves the members' values to pinned host memory, or to a file in `directory`; the tensors stay
  /// the same objects. `slots` parts fit on the device at a time. With a directory the host waits
  /// for a part that has not been read yet.
  /// Errors: c10::Error, c10::ValueError for an unusable directory; the members are then unchanged.
  static std::shared_ptr<OffloadedShards> create(
      const std::vector<std::vector<Shard::Member>>& members,
      c10::Device device,
      std::size_t slots,
      const std::string& directory);

  explicit OffloadedShards(DeviceRuntime& device) : device_(device) {}

  ~OffloadedShards();
  OffloadedShards(const OffloadedShards&) = delete;
  OffloadedShards& operator=(const OffloadedShards&) = delete;

  /// Begins a forward pass; parts on the device may be out of date.
  void begin();

  /// Runs `function` with the part's members on the device. Within a run of the same part, only the
  /// function is run. In a backward pass buffers do not change.
  /// Stream: the current one; no host wait without a directory.
  /// Errors: c10::Error, also if another thread is in a run; exceptions of the function. After an
  /// error the members are on the host.
  void run(std::size_t part, const std::function<void()>& function);

  /// Blocks the host until no copy reads or writes the members' memory. The end of a backward pass
  /// calls it. Call it before reading buffers or writing members at other times.
  /// Errors: c10::Error.
  void wait_for_copies();

  [[nodiscard]] Stats stats() const;

 private:
  class Rules;
  class SavedWeight;
  class Exclusive;

  struct Slot {
    c10::Storage storage;
    std::size_t part;  // kNothing if there is none
    driver::Fence loaded;
    FileTraffic::Outcome coming;  // future of `loaded`
    std::uint64_t used = 0;
    std::vector<c10::cuda::CUDAStream> readers;  // since it was filled
  };

  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

  /// Tracks casts of the weights of a running part on this thread, during the lifetime of `casts`.
  void watch_casts(std::size_t part, std::optional<WeightCasts>& casts);
  c10::Storage load_with_neighbor(std::size_t part);
  void wait_at_the_end_of_the_pass() SPILLWAY_REQUIRES(mutex_);
  Slot& slot_of(std::size_t part, CopyPriority priority) SPILLWAY_REQUIRES(mutex_);
  Slot& free_slot() SPILLWAY_REQUIRES(mutex_);
  void fill(Slot& slot, std::size_t part, CopyPriority priority) SPILLWAY_REQUIRES(mutex_);
  /// Waits until `loaded` is known. Errors: c10::Error; the slot is then empty.
  void settle(Slot& slot) SPILLWAY_REQUIRES(mutex_);
  /// Forbids other uses of its memory until the copy that fills it has passed.
  void release(Slot& slot) SPILLWAY_REQUIRES(mutex_);

  DeviceRuntime& device_;
  std::shared_ptr<FileTraffic> traffic_;  // null if all is pinned
  std::shared_ptr<HostGradients> gradients_;
  std::vector<std::unique_ptr<Shard>> shards_;
  Bytes largest_;
  std::vector<c10::Storage>
      running_;  // of each part while it runs, on the thread of the current run

  mutable Mutex mutex_;
  std::vector<Slot> slots_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t clock_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  Bytes loaded_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t extra_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::thread::id runner_ SPILLWAY_GUARDED_BY(mutex_);
  int runs_ SPILLWAY_GUARDED_BY(mutex_) = 0;           // nested runs of the running thread
  int waiting_pass_ SPILLWAY_GUARDED_BY(mutex_) = -1;  // the pass that waits for copies at its end
};

}  // namespace spillway
