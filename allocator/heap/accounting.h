// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/heap/account.h"
#include "allocator/heap/heap.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace spillway {

/// Peak totals of a step that begins and ends with nothing allocated.
struct StepTotals {
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  std::uint64_t blocks = 0;
  std::vector<std::pair<TagId, std::uint64_t>> tags;  // peak bytes per tag, each at its own time
};

/// Allocated and reserved bytes of a heap, over all its heap regions; peaks are exact. Each stream
/// counts in an account of its own (Account). The account takes the totals' lock, to settle
/// (SharedTotal), only when a total may exceed its peak.
/// Threads: safe. Lock order: a heap region's lock, the accounting's locks, the accounts' locks.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): its locks are apart
class Accounting {
 public:
  explicit Accounting(const HeapOptions& options)
      : offloaded_(options.offloaded), limit_(options.limit) {}

  /// The account of a stream's blocks. It lives as long as the accounting.
  Account& account_of(CUstream stream);

  /// Raises the peaks by a step that has allocated and freed these totals.
  void passed(const StepTotals& most);

  void mapped(Bytes size);
  /// Counts a new chunk.
  void created();
  void unmapped(Bytes size, std::uint64_t released);
  /// Memory that is not mapped for blocks but stays reserved: spare, or stuck.
  void keep_reserved(Bytes size);

  /// Bytes that can still be reserved within the limit and the budget.
  [[nodiscard]] Bytes room() const;
  /// Caps the reserved bytes in addition to the limit; zero: no cap.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// Whether reserving `more` bytes would exceed the budget, but not the limit.
  [[nodiscard]] bool passes_budget(Bytes more) const;
  /// Raises the budget so that `more` bytes can be reserved; does nothing without a budget.
  void exceed_budget(Bytes more);
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;
  void set_soft_limit(Bytes limit);
  /// Whether reserving `more` bytes would exceed the soft limit.
  [[nodiscard]] bool passes_soft_limit(Bytes more) const;
  void set_target(Bytes target);
  /// Starts measuring the peak of the reserved bytes under the target.
  void begin_target_peak();
  [[nodiscard]] Bytes target_peak() const;
  /// Zero if there is no target.
  [[nodiscard]] Bytes target() const;

  [[nodiscard]] bool has_target() const { return !target().zero(); }

  /// Whether there is a target that reserving `more` bytes would exceed.
  [[nodiscard]] bool passes_target(Bytes more) const;
  /// Bytes that can still be reserved within the target once `released` of the reserved ones are
  /// released; zero without a target.
  [[nodiscard]] Bytes room_to_target(Bytes released = {}) const;
  void count_out_of_memory();

  /// Chunks created plus chunks released by the driver.
  [[nodiscard]] std::uint64_t driver_calls() const;

  /// Fills in the fields that the accounting counts.
  void read(HeapStats& stats) const;
  /// The tags with allocated blocks or a peak, by id. Fills in allocated, allocated_peak and
  /// blocks.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();

 private:
  friend class Account;
  class AllAccounts;

  struct TagTotal {
    SharedTotal bytes;
    std::uint64_t blocks = 0;
  };

  /// The account has used up its grant. Grants it the unused grants of other accounts, or records a
  /// new peak.
  void settle(Account& account, TagId tag);
  void reserve(Bytes size) SPILLWAY_REQUIRES(mutex_);
  bool grant(Account& account, TagId tag) SPILLWAY_REQUIRES(totals_mutex_);

  [[nodiscard]] std::uint64_t offloaded() const {
    return offloaded_ == nullptr ? 0 : offloaded_->load(std::memory_order_relaxed);
  }

  const std::atomic<std::uint64_t>* const offloaded_;

  alignas(64) mutable Mutex totals_mutex_;
  std::vector<std::unique_ptr<Account>> accounts_ SPILLWAY_GUARDED_BY(totals_mutex_);
  // Readers bring it up to date first.
  mutable SharedTotal allocated_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable SharedTotal requested_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable SharedTotal blocks_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable TagPages<TagTotal> tags_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable std::uint64_t offloaded_at_allocated_peak_ SPILLWAY_GUARDED_BY(totals_mutex_) = 0;

  alignas(64) mutable Mutex mutex_;  // for counters that change rarely
  Bytes limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes budget_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes soft_limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes target_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes target_peak_ SPILLWAY_GUARDED_BY(mutex_);
  // reserved bytes, bytes offloaded at their peak, driver calls
  HeapStats slow_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
