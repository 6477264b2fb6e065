// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/accounting.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace spillway {

/// Locks all accounts, so that their sums are consistent.
class Accounting::AllAccounts {
 public:
  explicit AllAccounts(const std::vector<std::unique_ptr<Account>>& accounts)
      SPILLWAY_UNCHECKED_LOCKS : accounts_(accounts) {
    for (const auto& account : accounts_)
      account->mutex_.lock();
  }

  ~AllAccounts() SPILLWAY_UNCHECKED_LOCKS {
    for (const auto& account : accounts_)
      account->mutex_.unlock();
  }

  AllAccounts(const AllAccounts&) = delete;
  AllAccounts& operator=(const AllAccounts&) = delete;

  static Share* allocated(Account& account) SPILLWAY_UNCHECKED_LOCKS { return &account.allocated_; }

  static Share* requested(Account& account) SPILLWAY_UNCHECKED_LOCKS { return &account.requested_; }

  static Share* blocks(Account& account) SPILLWAY_UNCHECKED_LOCKS { return &account.blocks_; }

  /// Selects a tag's bytes.
  static auto bytes_of(TagId tag) {
    return [tag](Account& account) SPILLWAY_UNCHECKED_LOCKS -> Share* {
      Account::TagShare* const tagged = account.tags_.known(tag);
      return tagged == nullptr ? nullptr : &tagged->bytes;
    };
  }

  /// Calls `see(share)` for the share that `of` selects from each account.
  template <typename Of, typename See>
  void each(Of of, See see) const {
    for (const auto& account : accounts_) {
      if (Share* const share = of(*account)) see(*share);
    }
  }

  template <typename Of>
  void publish(SharedTotal& total, Of of) const {
    each(of, [&](Share& share) { total.publish(share); });
  }

  /// Brings a total up to date for reading; true if that is a new peak.
  template <typename Of>
  bool publish_all(SharedTotal& total, Of of) const {
    publish(total, of);
    return total.passed(0);
  }

  /// Grants `mine` the amount that it has added. True if that is a new peak.
  template <typename Of>
  bool settle(SharedTotal& total, Share& mine, Of of) const {
    if (total.grant(mine)) return false;
    publish(total, of);
    if (total.passes_peak()) {
      each(of, [&](Share& share) { total.reclaim(share); });
      total.raise_peak(mine);
      return true;
    }
    while (!total.grant(mine))
      each(of, [&](Share& share) { total.reclaim_half(share); });
    return false;
  }

  /// Brings the totals of all tags up to date.
  void publish_tags(TagPages<TagTotal>& tags) const SPILLWAY_UNCHECKED_LOCKS {
    for (const auto& account : accounts_) {
      account->tags_.each([&](TagId tag, Account::TagShare& tagged) {
        if (tagged.bytes.change() == 0 && tagged.blocks == 0) return;
        TagTotal& total = tags.of(tag);
        total.bytes.publish(tagged.bytes);
        total.blocks += static_cast<std::uint64_t>(std::exchange(tagged.blocks, 0));
      });
    }
  }

  /// Resets the peak to the present total.
  template <typename Of>
  void reset_peak(SharedTotal& total, Of of) const {
    publish(total, of);
    each(of, [&](Share& share) { total.reclaim(share); });
    total.reset_peak();
  }

 private:
  const std::vector<std::unique_ptr<Account>>& accounts_;
};

Account& Accounting::account_of(CUstream stream) {
  const Lock lock(totals_mutex_);
  for (const auto& account : accounts_) {
    if (account->stream_ == stream) return *account;
  }
  return *accounts_.emplace_back(std::make_unique<Account>(*this, stream));
}

void Accounting::settle(Account& account, TagId tag) {
  const Lock lock(totals_mutex_);
  if (grant(account, tag)) return;
  const AllAccounts all(accounts_);
  if (all.settle(allocated_, *AllAccounts::allocated(account), &AllAccounts::allocated))
    offloaded_at_allocated_peak_ = offloaded();
  all.settle(requested_, *AllAccounts::requested(account), &AllAccounts::requested);
  all.settle(blocks_, *AllAccounts::blocks(account), &AllAccounts::blocks);
  const auto bytes = AllAccounts::bytes_of(tag);
  all.settle(tags_.of(tag).bytes, *bytes(account), bytes);
}

/// Grants from the ungranted amount.
bool Accounting::grant(Account& account, TagId tag) {
  const LightLock lock(account.mutex_);
  return allocated_.grant(account.allocated_) && requested_.grant(account.requested_) &&
         blocks_.grant(account.blocks_) && tags_.of(tag).bytes.grant(account.tags_.of(tag).bytes);
}

void Accounting::passed(const StepTotals& most) {
  const Lock lock(totals_mutex_);
  const AllAccounts all(accounts_);
  all.publish(allocated_, &AllAccounts::allocated);
  if (allocated_.passed(most.bytes)) offloaded_at_allocated_peak_ = offloaded();
  all.publish(requested_, &AllAccounts::requested);
  requested_.passed(most.requested);
  all.publish(blocks_, &AllAccounts::blocks);
  blocks_.passed(most.blocks);
  for (const auto& [tag, bytes] : most.tags) {
    all.publish(tags_.of(tag).bytes, AllAccounts::bytes_of(tag));
    tags_.of(tag).bytes.passed(bytes);
  }
}

void Accounting::mapped(Bytes size) {
  const Lock lock(mutex_);
  slow_.reserved_total += size;
  reserve(size);
}

void Accounting::created() {
  const Lock lock(mutex_);
  ++slow_.driver_allocations;
}

void Accounting::keep_reserved(Bytes size) {
  const Lock lock(mutex_);
  reserve(size);
}

void Accounting::reserve(Bytes size) {
  slow_.reserved += size;
  target_peak_ = std::max(target_peak_, slow_.reserved);
  if (slow_.reserved > slow_.reserved_peak) {
    slow_.reserved_peak = slow_.reserved;
    slow_.offloaded_at_reserved_peak = Bytes{offloaded()};
  }
}

void Accounting::unmapped(Bytes size, std::uint64_t released) {
  const Lock lock(mutex_);
  slow_.driver_releases += released;
  slow_.reserved -= size;
}

Bytes Accounting::room() const {
  const Lock lock(mutex_);
  Bytes room{std::numeric_limits<std::uint64_t>::max()};
  for (const Bytes cap : {limit_, budget_}) {
    if (!cap.zero()) room = std::min(room, saturating_sub(cap, slow_.reserved));
  }
  return room;
}

void Accounting::set_budget(Bytes budget) {
  const Lock lock(mutex_);
  budget_ = budget;
}

Bytes Accounting::budget() const {
  const Lock lock(mutex_);
  return budget_;
}

bool Accounting::passes_budget(Bytes more) const {
  const Lock lock(mutex_);
  if (budget_.zero() || slow_.reserved + more <= budget_) return false;
  return limit_.zero() || slow_.reserved + more <= limit_;
}

void Accounting::exceed_budget(Bytes more) {
  const Lock lock(mutex_);
  if (!budget_.zero()) budget_ = std::max(budget_, slow_.reserved + more);
}

void Accounting::set_limit(Bytes limit) {
  const Lock lock(mutex_);
  limit_ = limit;
}

Bytes Accounting::limit() const {
  const Lock lock(mutex_);
  return limit_;
}

void Accounting::set_soft_limit(Bytes limit) {
  const Lock lock(mutex_);
  soft_limit_ = limit;
}

bool Accounting::passes_soft_limit(Bytes more) const {
  const Lock lock(mutex_);
  return !soft_limit_.zero() && slow_.reserved + more > soft_limit_;
}

void Accounting::set_target(Bytes target) {
  const Lock lock(mutex_);
  target_ = target;
}

void Accounting::begin_target_peak() {
  const Lock lock(mutex_);
  target_peak_ = slow_.reserved;
}

Bytes Accounting::target_peak() const {
  const Lock lock(mutex_);
  return target_.zero() ? Bytes{} : target_peak_;
}

Bytes Accounting::target() const {
  const Lock lock(mutex_);
  return target_;
}

bool Accounting::passes_target(Bytes more) const {
  const Lock lock(mutex_);
  return !target_.zero() && slow_.reserved + more > target_;
}

Bytes Accounting::room_to_target(Bytes released) const {
  const Lock lock(mutex_);
  return saturating_sub(target_ + released, slow_.reserved);
}

void Accounting::count_out_of_memory() {
  const Lock lock(mutex_);
  ++slow_.out_of_memory;
}

std::uint64_t Accounting::driver_calls() const {
  const Lock lock(mutex_);
  return slow_.driver_allocations + slow_.driver_releases;
}

void Accounting::read(HeapStats& stats) const {
  const Lock lock(mutex_);
  stats = slow_;
  const Lock totals_lock(totals_mutex_);
  const AllAccounts all(accounts_);
  if (all.publish_all(allocated_, &AllAccounts::allocated))
    offloaded_at_allocated_peak_ = offloaded();
  all.publish_all(requested_, &AllAccounts::requested);
  all.publish_all(blocks_, &AllAccounts::blocks);
  stats.allocated = Bytes{allocated_.value()};
  stats.allocated_blocks = blocks_.value();
  stats.requested = Bytes{requested_.value()};
  stats.allocated_peak = Bytes{allocated_.peak()};
  stats.allocated_blocks_peak = blocks_.peak();
  stats.requested_peak = Bytes{requested_.peak()};
  stats.offloaded_at_allocated_peak = Bytes{offloaded_at_allocated_peak_};
}

std::vector<HeapTagInfo> Accounting::tags() const {
  std::vector<HeapTagInfo> tags;
  const Lock lock(totals_mutex_);
  const AllAccounts all(accounts_);
  all.publish_tags(tags_);
  tags_.each([&](TagId tag, TagTotal& total) {
    total.bytes.passed(0);  // an allocation may be in progress
    if (total.blocks == 0 && total.bytes.peak() == 0) return;
    HeapTagInfo info;
    info.tag = tag;
    info.allocated = Bytes{total.bytes.value()};
    info.blocks = total.blocks;
    info.allocated_peak = Bytes{total.bytes.peak()};
    tags.push_back(info);
  });
  return tags;
}

void Accounting::reset_peaks() {
  const Lock lock(mutex_);
  slow_.reserved_peak = slow_.reserved;
  slow_.offloaded_at_reserved_peak = Bytes{offloaded()};
  const Lock totals_lock(totals_mutex_);
  const AllAccounts all(accounts_);
  all.reset_peak(allocated_, &AllAccounts::allocated);
  all.reset_peak(requested_, &AllAccounts::requested);
  all.reset_peak(blocks_, &AllAccounts::blocks);
  offloaded_at_allocated_peak_ = offloaded();
  tags_.each(
      [&](TagId tag, TagTotal& total) { all.reset_peak(total.bytes, AllAccounts::bytes_of(tag)); });
}

void Account::retag(TagId from, TagId to, Bytes size) {
  std::int64_t left = 0;
  {
    const LightLock lock(mutex_);
    TagShare& old = tags_.of(from);
    old.bytes.remove(size.count());
    --old.blocks;
    TagShare& tagged = tags_.of(to);
    ++tagged.blocks;
    left = tagged.bytes.add(size.count());
  }
  if (left < 0) settle(to);
}

void Account::settle(TagId tag) {
  accounting_.settle(*this, tag);
}

}  // namespace spillway
