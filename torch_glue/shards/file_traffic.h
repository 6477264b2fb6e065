// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/timelines.h"
#include "allocator/runtime/device_runtime.h"
#include "torch_glue/shards/host_file.h"
#include "torch_glue/shards/host_memory.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace spillway {

/// Copies between a file and a device, by way of a little pinned memory: a thread does what blocks,
/// one order after the other. The host memory that it holds does not depend on the file's size.
///
/// Threads: safe. Ownership: owns its thread and its pinned memory. Its destructor waits for what
/// has been ordered.
class FileTraffic {
 public:
  /// How an order ended: the fence of its last copy where there is one. No copy is under way where
  /// it failed.
  using Outcome = std::shared_future<Result<driver::Fence>>;

  /// Bytes of the file, and where on the device they belong.
  struct Piece {
    const std::byte* home;
    Bytes size;
    driver::DevicePtr destination;
  };

  /// `largest`: the most bytes of one load; six times that is the most that is pinned. Errors:
  /// c10::Error (pinned memory, a thread).
  FileTraffic(DeviceRuntime& device, std::shared_ptr<HostFile> file, Bytes largest);
  ~FileTraffic();
  FileTraffic(const FileTraffic&) = delete;
  FileTraffic& operator=(const FileTraffic&) = delete;

  /// Brings pieces to the device. Stream: after everything submitted so far to `consumer`, which
  /// must still wait for the fence. Errors: c10::Error.
  Outcome load(std::vector<Piece> pieces, driver::Stream consumer, CopyPriority haste);

  /// Brings bytes of the device to `home`: in the file, or in memory that is not pinned. `copied`
  /// is when the device's are free again.
  /// Stream: after everything submitted so far to `producer`. The host waits while too much is on
  /// its way. Errors: c10::Error.
  Outcome keep(driver::DevicePtr source,
               driver::Stream producer,
               std::shared_ptr<HostMemory> home,
               Bytes offset,
               Bytes size,
               driver::Fence& copied);

  /// Blocks the host until all that was ordered is done. Errors: c10::Error, the first of keep()
  /// since the last time.
  void wait();

  [[nodiscard]] const std::shared_ptr<HostFile>& file() const { return file_; }

 private:
  using Order = std::packaged_task<Result<driver::Fence>()>;

  struct Bounce {
    HostSlot slot;
    driver::Fence read;  // by the last copy out of it
  };

  Outcome order(Order task);
  void work();
  Result<driver::Fence> bring(const std::vector<Piece>& pieces,
                              driver::Fence ready,
                              CopyPriority haste);
  Status put(const HostSlot& slot, driver::Fence copied, HostMemory& home, Bytes offset);
  HostSlot slot_for(Bytes size);
  void give(HostSlot slot);

  DeviceRuntime& device_;
  const std::shared_ptr<HostFile> file_;
  driver::Timelines consumers_;
  const Bytes most_to_keep_;       // on the way at a time, or one that is larger
  std::array<Bounce, 4> bounces_;  // of the thread, in turn
  std::size_t turn_ = 0;
  std::thread thread_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Order> orders_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes on_the_way_ SPILLWAY_GUARDED_BY(mutex_);  // pinned, to be kept
  Status failed_ SPILLWAY_GUARDED_BY(mutex_);     // to keep
  bool end_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
