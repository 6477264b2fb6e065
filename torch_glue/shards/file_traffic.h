// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_runtime.h"
#include "allocator/driver/timeline.h"
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

/// Copies between a file and a device through a small pinned buffer. A thread executes the blocking
/// part of the requests in order. Its host memory does not depend on the file's size.
///
/// Threads: safe.
/// Ownership: owns its thread and its pinned memory. The destructor waits for all requests.
class FileTraffic {
 public:
  /// Result of a request: the fence of its last copy, if any. After a failure no copy is in
  /// progress.
  using Outcome = std::shared_future<Result<driver::Fence>>;

  /// Bytes of the file and their destination on the device.
  struct Piece {
    const std::byte* home;
    Bytes size;
    driver::DevicePtr destination;
  };

  /// `largest`: maximum bytes of one load. At most six times that is pinned.
  /// Errors: c10::Error (pinned memory, a thread).
  FileTraffic(DeviceRuntime& device, std::shared_ptr<HostFile> file, Bytes largest);
  ~FileTraffic();
  FileTraffic(const FileTraffic&) = delete;
  FileTraffic& operator=(const FileTraffic&) = delete;

  /// Copies pieces to the device.
  /// Stream: after everything submitted so far to `consumer`, which must still wait for the fence.
  /// Errors: c10::Error.
  Outcome load(std::vector<Piece> pieces, driver::Stream consumer, CopyPriority priority);

  /// Copies bytes of the device to `home`: in the file, or in pageable memory. After `copied` the
  /// device memory can be reused.
  /// Stream: after everything submitted so far to `producer`. The host waits if too many bytes are
  /// in flight.
  /// Errors: c10::Error.
  Outcome keep(driver::DevicePtr source,
               driver::Stream producer,
               std::shared_ptr<HostMemory> home,
               Bytes offset,
               Bytes size,
               driver::Fence& copied);

  /// Blocks the host until all requests are complete.
  /// Errors: c10::Error, the first failure of keep() since the last call.
  void wait();

  [[nodiscard]] const std::shared_ptr<HostFile>& file() const { return file_; }

 private:
  using Order = std::packaged_task<Result<driver::Fence>()>;

  Outcome order(Order task);
  void work();
  Result<driver::Fence> bring(const std::vector<Piece>& pieces,
                              driver::Fence ready,
                              CopyPriority priority);
  Status put(HostSlot& slot, driver::Fence copied, HostMemory& home, Bytes offset);
  HostSlot slot_for(Bytes size);
  void give(HostSlot slot);
  void count_arrived(Bytes size);

  DeviceRuntime& device_;
  const std::shared_ptr<HostFile> file_;
  driver::Timelines consumers_;
  const Bytes most_to_keep_;         // maximum bytes in flight, or a larger single request
  std::array<HostSlot, 4> bounces_;  // used by the thread in rotation
  std::size_t turn_ = 0;
  std::thread thread_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Order> orders_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes on_the_way_ SPILLWAY_GUARDED_BY(mutex_);  // pinned, of keep()
  Status failed_ SPILLWAY_GUARDED_BY(mutex_);     // of keep()
  bool end_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
