// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/lifetime/memory_events.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

namespace driver {
struct Span;
}

class RunLogState;

/// Logs a job's activity for `spillway report` and `spillway top`: the file described in
/// docs/reports.md, and the statistics page. While off, it costs one relaxed load. A forked child
/// writes nothing.
///
/// Threads: safe. Its lock is taken inside other locks. No other lock is taken inside it, except in
/// step_ended() and look(). One per process; never destroyed.
class RunLog final : private MemoryObserver {
 public:
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  static RunLog& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  struct Options {
    std::string log;    // path of the log file, which is created; empty: none
    std::string about;  // its first line, one JSON object
    std::string page;   // path of the statistics page, which is created; empty: none
    bool ours = true;   // our heap allocates PyTorch's memory
  };

  /// Starts logging; blocks that are already allocated are logged first.
  /// Errors: kNotReady if logging is on; kInvalidArgument if a file cannot be created. No file is
  /// left then.
  Status start(const Options& options);

  /// Ends the log and the page, and removes the page's file. Does nothing while off.
  void stop();

  /// A number for a storage that autograd saves; never zero.
  std::uint64_t number_storage() { return storages_.fetch_add(1) + 1; }

  struct Move {
    std::uint64_t storage = 0;
    DeviceId device{};
    std::uint64_t address = 0;  // of its block
    Bytes bytes;
    Bytes copied;
    TagId region = TagId::kUntagged;
    TagId memory = TagId::kUntagged;
  };

  /// Logs the offload of a storage to a host copy. It counts as offloaded once its block is freed.
  void offloaded(const Move& move);
  /// Logs the fetch of a storage into a new block.
  void was_fetched(std::uint64_t storage, DeviceId device, std::uint64_t address);
  /// Logs that a storage is unreferenced.
  void ended(std::uint64_t storage);
  /// Logs the origin of an offloaded storage: an operator and a line of the program. Either may be
  /// empty.
  void came_from(std::uint64_t storage, const std::string& made_by, const std::string& line);

  /// Logs spans of device time other than those of SpanLog.
  void timed(const std::vector<driver::Span>& spans);

  /// Called within a step: writes the page and spans, at most ten times a second.
  void look();

 protected:
  ~RunLog();  // never destroyed

 private:
  enum class When { kAtStep, kBetween, kAtEnd };

  void born(const BornBlock& block) override;
  void died(DeviceId device, std::uint64_t address) override;
  void retagged(DeviceId device, std::uint64_t address, TagId tag) override;
  void tag_step_ended(TagId tag, const TagStepStats& step) override;
  /// Writes statistics and spans, and flushes the file. Stream: no host wait.
  void step_ended() override;

  void write_out(When when);

  RunLog();

  static std::atomic<bool> on_;  // not inline: one instance for all of Spillway's libraries
  std::atomic<std::uint64_t> storages_{0};
  std::atomic<std::uint64_t> looked_{0};  // host clock at the last write of the page
  mutable Mutex mutex_;
  std::unique_ptr<RunLogState> state_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
