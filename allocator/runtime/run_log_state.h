// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/ids.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/stats.h"
#include "allocator/runtime/stats_page.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway {

/// Ends of the last copies of each stream, by which the length of a stream's wait for a copy is
/// computed. The two events around a wait are apart even without a wait. Follows the rules of
/// python/spillway/report/copies.py, for the copies that it remembers.
///
/// Threads: confined.
class CopyEnds {
 public:
  /// Adds the span of a copy. Spans of a stream come in order.
  void add(const driver::Span& copy);

  /// Whether a stream makes copies. Its waits before a copy are not stalls.
  [[nodiscard]] bool copies(DeviceId device, std::uint64_t stream) const;

  /// When a wait of a compute stream was over: at the end of the copy that it waited for, at the
  /// latest at its own end. The beginning of the wait if no copy was in progress.
  [[nodiscard]] std::uint64_t over(const driver::Span& wait) const;

 private:
  using Queue = std::deque<driver::Span>;

  [[nodiscard]] static const driver::Span* last(const Queue& queue,
                                                const driver::Span& wait,
                                                bool of_its_storage);

  std::map<std::pair<DeviceId, std::uint64_t>, Queue> queues_;
};

/// Nanoseconds of the run log's clock.
std::uint64_t host_now();

/// The state of RunLog, and its serialization. Threads: externally serialized.
class RunLogState {
 public:
  File file;
  bool detailed = false;  // single events are logged
  std::string text;       // not written yet
  std::uint64_t began = 0;
  std::uint64_t steps = 0;
  StatsPage page;
  bool ours = true;

  [[nodiscard]] std::uint64_t time() const { return host_now() - began; }

  /// Writes `text` to the file. If that fails, logging ends and the job continues.
  void flush();
  /// Called after an event. Flushes at intervals, and ends single events once the log has reached
  /// its size limit.
  void filled();

  /// A tag's number in the log. Logs its name at first use.
  std::uint64_t number(TagId tag);
  /// The number of the block at an address; zero if it is unknown.
  [[nodiscard]] std::uint64_t block_at(DeviceId device, std::uint64_t address) const;

  void born(DeviceId device, std::uint64_t address, Bytes size, TagId tag);
  void died(DeviceId device, std::uint64_t address);
  void add(const std::vector<driver::Span>& spans);
  void write_page(const RuntimeStats& stats);
  void write_state(std::string_view kind, const RuntimeStats& stats);

 private:
  /// A device's memory, queried once.
  Bytes capacity_of(DeviceId id);

  using Address = std::pair<DeviceId, std::uint64_t>;

  struct HashAddress {
    std::size_t operator()(const Address& address) const {
      return std::hash<std::uint64_t>()(address.second) ^
             (static_cast<std::size_t>(address.first) << 60U);
    }
  };

  struct Stalls {
    std::uint64_t count = 0;
    std::uint64_t time = 0;
  };

  struct Block {
    std::uint64_t number = 0;
    Bytes bytes;
  };

  struct Live {
    Bytes now;
    Bytes peak;
  };

  void add(const driver::Span& span);

  std::uint64_t written_ = 0;  // bytes
  std::uint64_t blocks_ = 0;
  std::unordered_map<Address, Block, HashAddress> live_;
  std::map<DeviceId, Live> bytes_;
  std::map<DeviceId, Bytes> capacities_;
  std::unordered_set<TagId> named_;
  std::unordered_set<std::uint32_t> span_names_;  // spans whose names are logged
  CopyEnds copy_ends_;
  std::map<TagId, Stalls> stalls_;
};

}  // namespace spillway
