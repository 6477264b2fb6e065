// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/heap/heap.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/shared_room.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace spillway {

/// The model state on a device, and the share of the budget that it has beside a step of a region.
/// Threads: safe. Ownership: borrows the device's curve.
class ModelStateShare {
 public:
  explicit ModelStateShare(AllocationCurve& curve) : curve_(curve) {}

  /// Allocated bytes of its blocks.
  [[nodiscard]] Bytes bytes() const { return Bytes{bytes_}; }

  /// The allocated block holds model state from now on, which may leave: the curve leaves it out
  /// from the next step on, or at once unless it `stays` in this one.
  void add(const HeapBlockInfo& block, bool stays = true);
  /// Its blocks have that many bytes more (fewer: modulo 2^64).
  void change(std::uint64_t bytes);

  /// A step begins, with that model state beside it (DeviceRuntime::ModelStateNeed).
  void begin_step(const ModelStateTerms& terms);

  /// Of the running step.
  [[nodiscard]] ModelStateTerms terms() const { return {need(), streams_}; }

  /// Of the running step. If not zero, the curve leaves model state out.
  [[nodiscard]] Bytes need() const { return Bytes{need_}; }

  /// Where an allocation has no room, model state leaves before saved tensors while it has more
  /// bytes than this, without those that add() adds from now on. `stays`: its share is meant to
  /// stay; what leaves of it is counted as by count_reclaimed(). None: saved tensors leave first,
  /// as initially.
  void set_share(std::optional<Bytes> share, bool stays = false);
  [[nodiscard]] bool exceeds_share() const;

  [[nodiscard]] bool share_stays() const { return share_stays_; }

  /// Sets what leaves by the running step's plan; no effect if it is known.
  void set_plan(const std::vector<ModelStateLeave>& leaves);

  [[nodiscard]] bool plan_known() const { return plan_known_; }

  /// Whether the storage is to leave after that many uses in the running step (ModelStateLeave).
  [[nodiscard]] bool leaves_after(std::uint64_t storage, std::size_t uses) const;

  /// Counts saved storages that a reclaimer has freed, against the plan.
  void count_reclaimed(Bytes freed) { reclaimed_ += freed.count(); }

  /// Bytes counted since the last call.
  Bytes take_reclaimed() { return Bytes{reclaimed_.exchange(0)}; }

 private:
  static constexpr std::uint64_t kNoShare = ~std::uint64_t{0};

  AllocationCurve& curve_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> need_{0};
  std::atomic<bool> streams_{false};
  std::atomic<std::uint64_t> share_{kNoShare};
  std::atomic<bool> share_stays_{false};
  std::atomic<std::uint64_t> added_{0};  // to bytes_, since the share was set
  std::atomic<std::uint64_t> reclaimed_{0};
  std::atomic<bool> plan_known_{false};
  mutable LightMutex mutex_;
  std::set<std::pair<std::uint64_t, std::size_t>> leaves_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
