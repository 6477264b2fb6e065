// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/heap/account.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/shared_total.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace spillway {

/// The most that requests amount to at one time which begin with nothing live and end so.
struct StepTotals {
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  std::uint64_t blocks = 0;
  std::vector<std::pair<TagId, std::uint64_t>> tags;  // bytes, each at its own time
};

/// What a heap has handed out and what it holds, over all its regions; peaks are exact. Each stream
/// has an account of its own, from which one comes here only where a total may pass its peak.
/// Threads: safe. Locks are taken in this order: a region's, the accounting', those of the
/// accounts.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): its locks are apart
class Accounting {
 public:
  explicit Accounting(const HeapOptions& options)
      : offloaded_(options.offloaded), limit_(options.limit) {}

  /// The account of a stream's blocks, as long as the accounting.
  Account& account_of(CUstream stream);

  /// This many were handed out and taken back again.
  void passed(const StepTotals& most);

  void mapped(Bytes size, std::uint64_t chunks);
  void unmapped(Bytes size);
  void stuck(Bytes size);

  /// How many more bytes may be reserved: up to the limit, and up to the budget.
  [[nodiscard]] Bytes room() const;
  /// Caps the reserved bytes beside the limit; zero: no cap.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// Whether reserving `more` bytes would pass the budget, but not the limit.
  [[nodiscard]] bool passes_budget(Bytes more) const;
  /// Raises the budget so that `more` bytes can be reserved; nothing where there is none.
  void exceed_budget(Bytes more);
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;
  void set_soft_limit(Bytes limit);
  /// Whether holding `more` bytes would pass the soft limit.
  [[nodiscard]] bool passes_soft_limit(Bytes more) const;
  void set_target(Bytes target);
  /// Begins to count the most that is held.
  void begin_target_peak();
  [[nodiscard]] Bytes target_peak() const;
  /// Zero where there is none.
  [[nodiscard]] Bytes target() const;

  [[nodiscard]] bool has_target() const { return !target().zero(); }

  /// Whether there is one, and holding `more` bytes would pass it.
  [[nodiscard]] bool passes_target(Bytes more) const;
  /// How many more bytes may be held up to the target; none where there is none.
  [[nodiscard]] Bytes room_to_target() const;
  void count_out_of_memory();

  /// Chunks that the driver has created and released.
  [[nodiscard]] std::uint64_t driver_calls() const;

  /// Fills in what the accounting know.
  void read(HeapStats& stats) const;
  /// The tags with live blocks or a peak, by id: live, allocated_peak, blocks.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();

 private:
  friend class Account;
  class AllAccounts;

  struct TagTotal {
    SharedTotal bytes;
    std::uint64_t blocks = 0;
  };

  /// The account has handed out more than it may: others have what it lacks, or there is a new
  /// peak.
  void settle(Account& account, TagId tag);
  bool grant(Account& account, TagId tag) SPILLWAY_REQUIRES(totals_mutex_);

  [[nodiscard]] std::uint64_t offloaded() const {
    return offloaded_ == nullptr ? 0 : offloaded_->load(std::memory_order_relaxed);
  }

  const std::atomic<std::uint64_t>* const offloaded_;

  alignas(64) mutable Mutex totals_mutex_;
  std::vector<std::unique_ptr<Account>> accounts_ SPILLWAY_GUARDED_BY(totals_mutex_);
  // Brought up to now by the code that reads them.
  mutable SharedTotal live_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable SharedTotal requested_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable SharedTotal blocks_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable TagPages<TagTotal> tags_ SPILLWAY_GUARDED_BY(totals_mutex_);
  mutable std::uint64_t offloaded_at_allocated_peak_ SPILLWAY_GUARDED_BY(totals_mutex_) = 0;

  alignas(64) mutable Mutex mutex_;  // for what changes rarely
  Bytes limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes budget_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes soft_limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes target_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes target_peak_ SPILLWAY_GUARDED_BY(mutex_);
  HeapStats slow_ SPILLWAY_GUARDED_BY(mutex_);  // held bytes, what was offloaded then, driver calls
};

}  // namespace spillway
