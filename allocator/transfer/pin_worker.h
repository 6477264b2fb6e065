// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/transfer/host_pages.h"

#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>

namespace spillway {

/// A background thread that creates one pinned piece at a time, ahead of need. It starts with the
/// first piece and blocks all signals. Only the destructor ends it (tests only); it is not joined
/// at process exit.
///
/// Threads: the owner's lock serializes all calls.
class PinWorker {
 public:
  using Make = std::function<Result<HostPages>(Bytes)>;

  explicit PinWorker(Make make) : make_(std::move(make)) {}

  /// Requires: no piece is in progress.
  ~PinWorker();
  PinWorker(const PinWorker&) = delete;
  PinWorker& operator=(const PinWorker&) = delete;

  /// Begins a piece. False if the machine has no thread left. Requires: no piece is in progress.
  bool begin(Bytes size);

  /// The size of the piece in progress, from begin() to finish(); zero if there is none.
  [[nodiscard]] Bytes under_way() const { return under_way_; }

  /// Waits for the piece. Requires: a piece is in progress. Errors: those of make.
  Result<HostPages> finish();

 private:
  void work();

  const Make make_;
  Bytes under_way_;
  std::thread thread_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  Bytes wanted_ SPILLWAY_GUARDED_BY(mutex_);  // read by the thread; zero for none
  std::optional<Result<HostPages>> made_ SPILLWAY_GUARDED_BY(mutex_);
  bool end_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
