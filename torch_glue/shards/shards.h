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

/// A model in parts that take turns on the device. A part's weights come in before it runs, while
/// the one before it runs, and once more for its backward pass; they never go back, only gradients
/// and buffers do. What the backward pass needs of weights is remembered as weights, not as
/// tensors.
///
/// Threads: run() on one thread at a time, which it checks; backward passes on any.
/// Ownership: graphs own it together with its maker. The members keep their memory on the host.
class OffloadedShards : public std::enable_shared_from_this<OffloadedShards> {
 public:
  struct Stats {
    Bytes loaded;                   // weights and buffers that came in, since creation
    Bytes gradients;                // that went out
    Bytes slots;                    // device memory for parts
    std::uint64_t extra_slots = 0;  // parts that had to have more, because a slot was still in use
  };

  /// Moves the members' values to pinned host memory, or to a file in `directory`; they stay the
  /// same tensors. `slots` parts fit on the device at a time. With a directory the host waits where
  /// a part has not been read yet.
  /// Errors: c10::Error, a c10::ValueError for a directory of no use; the members are as they were
  /// then.
  static std::shared_ptr<OffloadedShards> create(
      const std::vector<std::vector<Shard::Member>>& members,
      c10::Device device,
      std::size_t slots,
      const std::string& directory);

  explicit OffloadedShards(DeviceRuntime& device) : device_(device) {}

  ~OffloadedShards();
  OffloadedShards(const OffloadedShards&) = delete;
  OffloadedShards& operator=(const OffloadedShards&) = delete;

  /// A new forward pass: what is on the device may be out of date.
  void begin();

  /// Runs `function` with the part's members on the device. Inside a run of the same part only the
  /// function is run. In a backward pass buffers do not change.
  /// Stream: the current one; no host wait without a directory. Errors: c10::Error, also where
  /// another thread is in a run, and what the function throws; the members are on the host again.
  void run(std::size_t part, const std::function<void()>& function);

  /// Blocks the host until no copy reads or writes the members' memory. Done by itself at the end
  /// of a backward pass; the code that reads buffers or writes members at another time calls it
  /// before. Errors: c10::Error.
  void wait_for_copies();

  [[nodiscard]] Stats stats() const;

 private:
  class Rules;
  class SavedWeight;
  class Turn;

  struct Slot {
    c10::Storage storage;
    std::size_t part;  // kNothing where there is none
    driver::Fence loaded;
    FileTraffic::Outcome coming;  // what `loaded` will be
    std::uint64_t used = 0;
    std::vector<c10::cuda::CUDAStream> readers;  // since it was filled
  };

  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

  /// Casts of the weights of a part that runs, on this thread and as long as `casts` lives, are
  /// remembered as such.
  void watch_casts(std::size_t part, std::optional<WeightCasts>& casts);
  c10::Storage load_with_neighbour(std::size_t part);
  void wait_at_the_end_of_the_pass() SPILLWAY_REQUIRES(mutex_);
  Slot& slot_of(std::size_t part, CopyPriority haste) SPILLWAY_REQUIRES(mutex_);
  Slot& free_slot() SPILLWAY_REQUIRES(mutex_);
  void fill(Slot& slot, std::size_t part, CopyPriority haste) SPILLWAY_REQUIRES(mutex_);
  /// Waits until `loaded` is known. Errors: c10::Error; it holds no part then.
  void settle(Slot& slot) SPILLWAY_REQUIRES(mutex_);
  /// Its memory is used by nothing before what fills it has passed.
  void release(Slot& slot) SPILLWAY_REQUIRES(mutex_);

  DeviceRuntime& device_;
  std::shared_ptr<FileTraffic> traffic_;  // null where all is pinned
  std::shared_ptr<HostGradients> gradients_;
  std::vector<std::unique_ptr<Shard>> shards_;
  Bytes largest_;
  std::vector<c10::Storage>
      running_;  // of each part, while it runs; of the thread whose turn it is

  mutable Mutex mutex_;
  std::vector<Slot> slots_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t clock_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  Bytes loaded_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t extra_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::thread::id runner_ SPILLWAY_GUARDED_BY(mutex_);
  int runs_ SPILLWAY_GUARDED_BY(mutex_) = 0;           // of the runner, nested
  int waiting_pass_ SPILLWAY_GUARDED_BY(mutex_) = -1;  // that will wait for copies at its end
};

}  // namespace spillway
