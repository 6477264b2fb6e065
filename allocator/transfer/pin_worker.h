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

/// A thread that makes one pinned piece at a time, ahead of need. It is begun with the first piece
/// and takes none of the program's signals. Nothing ends it but the destructor (tests only): at the
/// process's exit it is left alone.
///
/// Threads: its owner's lock orders all calls.
class PinWorker {
 public:
  using Make = std::function<Result<HostPages>(Bytes)>;

  explicit PinWorker(Make make) : make_(std::move(make)) {}

  /// Requires: no piece is under way.
  ~PinWorker();
  PinWorker(const PinWorker&) = delete;
  PinWorker& operator=(const PinWorker&) = delete;

  /// Begins a piece. False where the machine has no thread for it. Requires: none is under way.
  bool begin(Bytes size);

  /// The size of the piece under way, from begin() to finish(); zero where there is none.
  [[nodiscard]] Bytes under_way() const { return under_way_; }

  /// Waits for the piece. Requires: one is under way. Errors: make's.
  Result<HostPages> finish();

 private:
  void work();

  const Make make_;
  Bytes under_way_;
  std::thread thread_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  Bytes wanted_ SPILLWAY_GUARDED_BY(mutex_);  // by the thread, zero for nothing
  std::optional<Result<HostPages>> made_ SPILLWAY_GUARDED_BY(mutex_);
  bool end_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
