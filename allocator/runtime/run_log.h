// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"

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
struct TagStepStats;

/// Writes down what a job does, for `spillway report` and `spillway top`: the file that
/// docs/reports.md describes, and the statistics page. Off, it costs one relaxed load. In a forked
/// child nothing is written.
///
/// Threads: safe; its lock is taken inside those of others and no other is taken inside it, but for
/// step_ended() and look(). One for the process; never destroyed.
class RunLog {
 public:
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  static RunLog& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  struct Options {
    std::string log;    // path of the file, made here; empty for none
    std::string about;  // its first line, one JSON object
    std::string page;   // path of the statistics page, made here; empty for none
    bool ours = true;   // PyTorch's memory is our heap's
  };

  /// Blocks that live already are written down first. Errors: kNotReady where it is on;
  /// kInvalidArgument where a file cannot be made. Nothing is left behind then.
  Status start(const Options& options);

  /// Ends both; the page's file goes. Does nothing where it is off.
  void stop();

  /// A block of our heap, or of PyTorch's; `bytes` as rounded. `died` comes before the memory can
  /// be handed out again.
  void born(DeviceId device, std::uint64_t address, Bytes bytes, TagId tag);
  void died(DeviceId device, std::uint64_t address);
  void retagged(DeviceId device, std::uint64_t address, TagId tag);

  /// A number for a storage that autograd saves, never zero.
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

  /// The storage's bytes are, or are becoming, a host copy: it is offloaded once its block has
  /// died.
  void moved(const Move& move);
  /// It has a block again; offloaded once that has died.
  void was_fetched(std::uint64_t storage, DeviceId device, std::uint64_t address);
  /// Nothing wants it any more.
  void ended(std::uint64_t storage);
  /// Where a storage that moves was made: an operator, a line of the program; either may be empty.
  void came_from(std::uint64_t storage, const std::string& made_by, const std::string& line);

  /// Spans that SpanLog does not give, of its device times.
  void timed(const std::vector<driver::Span>& spans);

  void tag_step_ended(TagId tag, const TagStepStats& step);

  /// A training step has ended: statistics, and what has been timed by now, are written, and the
  /// file is brought up to date. Stream: no host wait.
  void step_ended();

  /// In the middle of a step: the page, and what has been timed, at most ten times a second.
  void look();

 private:
  enum class When { kAtStep, kBetween, kAtEnd };

  void write_out(When when);

  RunLog();
  ~RunLog();

  static std::atomic<bool> on_;  // not inline: one for all of Spillway's libraries
  std::atomic<std::uint64_t> storages_{0};
  std::atomic<std::uint64_t> looked_{0};  // the host's clock, when the page was written last
  mutable Mutex mutex_;
  std::unique_ptr<RunLogState> state_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
