// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace spillway {

/// What a device held over one step, and when moved storages were not on it. Places count the
/// events (births and deaths of blocks) since the step began; place 0 is its beginning.
struct StepCurve {
  /// A storage that had moved was not on the device at the places from <= p < to.
  struct Absence {
    std::size_t storage = 0;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t bytes = 0;  // of its block, as rounded
  };

  /// A storage of the step was wanted, as soon as it was there: by the backward pass, or, only so
  /// that `product` could be recomputed from it.
  struct Ask {
    static constexpr std::size_t kNoProduct = static_cast<std::size_t>(-1);

    std::size_t storage = 0;
    std::size_t place = 0;
    std::size_t product = kNoProduct;
  };

  std::vector<std::uint64_t> live;  // bytes at each place
  /// From here on its storages were back or given up and the optimizer ran: live.size() where that
  /// was not followed.
  std::size_t tail = 0;
  std::vector<Absence> absences;  // in the order of their ends
  std::vector<Ask> asks;          // in their order
  /// By storage, as far as any was recomputed: the most bytes that it took besides what was
  /// there when it was done.
  std::vector<std::uint64_t> besides;

  [[nodiscard]] Bytes peak() const;
  [[nodiscard]] Bytes optimizer_phase_peak() const;
};

/// Follows one device through a step. Off, it costs one relaxed load.
///
/// Threads: safe. What storages report on a step that is not the running one is ignored.
class AllocationCurve {
 public:
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// A step begins, with this many bytes live; does nothing where one is running.
  void begin(std::uint64_t step, Bytes live);
  /// Its backward pass is over; what follows may be its optimizer's step, or none of it.
  void begin_optimizer_phase();
  [[nodiscard]] bool in_optimizer_phase() const;
  /// Ends it, with or without what came after begin_optimizer_phase(); empty where none is running,
  /// or where it had more events than are kept.
  StepCurve end(bool with_optimizer_phase = true);

  /// Call these where on(). `bytes` as rounded; `died` comes before the memory can be handed out
  /// again.
  void born(Bytes bytes);
  void died(std::uint64_t address, Bytes bytes);
  /// This many bytes are live now: for allocators that tell the sizes of blocks only afterwards.
  void settle(Bytes live);

  /// The memory of moved storage `storage` of that step is the block at `address` from now on: its
  /// death begins an absence.
  void watch(std::uint64_t step, std::uint64_t address, std::size_t storage);
  /// It is on the device again, or nothing wants it any more: its absence, if any, ends. What is
  /// there again may have fewer bytes: `lacking` of them are still offloaded.
  void present(std::uint64_t step, std::size_t storage, Bytes lacking = Bytes{});

  /// It has been asked for, and is there: StepCurve::Ask.
  void asked(std::uint64_t step, std::size_t storage, std::size_t product);

  /// It has been recomputed since that place(); what it took besides counts.
  void computed(std::uint64_t step, std::size_t storage, std::size_t since);

  /// The running step up to here, as if it ended now; empty where none is.
  [[nodiscard]] StepCurve so_far() const;

  /// The bytes live when the running step began, and now; zero where none is.
  [[nodiscard]] Bytes allocated_at_begin() const;
  [[nodiscard]] Bytes live() const;
  /// The place of the last event.
  [[nodiscard]] std::size_t place() const;
  /// The most so far.
  [[nodiscard]] Bytes peak() const;

 private:
  struct Away {
    std::size_t from = 0;
    std::uint64_t bytes = 0;
  };

  void put(std::uint64_t live) SPILLWAY_REQUIRES(mutex_);
  void end_absences(StepCurve& curve) const SPILLWAY_REQUIRES(mutex_);
  /// From the last event on, other bytes of the storage are offloaded.
  void change_offloaded(std::size_t storage, std::uint64_t bytes) SPILLWAY_REQUIRES(mutex_);

  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  StepCurve curve_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<std::size_t> tail_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::size_t> watched_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<std::size_t, Away> offloaded_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
