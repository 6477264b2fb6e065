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

/// Allocated bytes of a device over one step, and the absences of offloaded storages. Model state
/// that may leave is counted apart: it makes room for a step. Event indices
/// count the events (allocations and frees of blocks) since the step began; index 0 is its
/// beginning.
struct StepCurve {
  /// An offloaded storage was not on the device at the events from <= p < to.
  struct Absence {
    std::size_t storage = 0;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t bytes = 0;  // of its block, rounded
  };

  /// A use of a storage of the step, at the event when it became available: by the backward pass,
  /// or only as an input for the recomputation of `product`.
  struct Ask {
    static constexpr std::size_t kNoProduct = static_cast<std::size_t>(-1);

    std::size_t storage = 0;
    std::size_t event = 0;
    std::size_t product = kNoProduct;
  };

  /// From that event on, `bytes` of storages that the step saved were on the device.
  struct Saved {
    std::size_t event = 0;
    std::uint64_t bytes = 0;
  };

  /// When a storage of the model state was used: at the events first <= p < last, except
  /// from <= p < to, the longest time between two uses.
  struct ModelStateUses {
    std::uint64_t storage = 0;  // its identity (AllocationCurve::model_state_used)
    std::uint64_t bytes = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t before = 0;  // number of the uses before `from`
    bool written = false;    // by the uses
  };

  std::vector<std::uint64_t> allocated;  // bytes at each event, besides model state
  /// Bytes of model state, at each event the most, minus those of `allocated` that became model
  /// state in this step: gradients, which take their room from the step. Empty if there was none.
  std::vector<std::int64_t> model_state;
  /// First event of the optimizer phase, when all storages had been fetched or released;
  /// allocated.size() if that was not tracked.
  std::size_t optimizer_begin = 0;
  std::vector<Absence> absences;  // in the order of their ends
  std::vector<Ask> asks;          // in order
  /// By storage, as far as any was recomputed: peak bytes during its recomputation in addition to
  /// its result.
  std::vector<std::uint64_t> besides;
  std::vector<Saved> saved;                      // in order
  std::vector<ModelStateUses> model_state_uses;  // by `first`

  /// The most bytes, with model state.
  [[nodiscard]] Bytes peak() const;
  /// Of the peak, bytes of storages that the step saved.
  [[nodiscard]] Bytes saved_at_peak() const;
  /// Of the peak, bytes of model state beyond those that the rest of the step left room for.
  [[nodiscard]] Bytes model_state_at_peak() const;
  [[nodiscard]] Bytes optimizer_phase_peak() const;
  /// Bytes when the step began, with model state.
  [[nodiscard]] Bytes at_begin() const;

 private:
  /// With model state, of the events from `from` on.
  [[nodiscard]] std::size_t place_of_peak(std::size_t from) const;

  [[nodiscard]] std::uint64_t at(std::size_t event) const {
    const std::int64_t more = event < model_state.size() ? model_state[event] : 0;
    return allocated[event] + static_cast<std::uint64_t>(more);  // wraps back
  }
};

/// Tracks one device through a step. While off, it costs one relaxed load.
///
/// Threads: safe. Reports of storages on another step than the running one are ignored.
class AllocationCurve {
 public:
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Begins a step with `allocated` bytes besides those of set_model_state(); does nothing if one
  /// is running.
  void begin(std::uint64_t step, Bytes allocated);
  /// Ends the backward pass; the optimizer step may follow.
  void begin_optimizer_phase();
  [[nodiscard]] bool in_optimizer_phase() const;
  /// Ends the step, with or without the events after begin_optimizer_phase(). Empty if none is
  /// running, or if it had more events than are stored.
  StepCurve end(bool with_optimizer_phase = true);

  /// Call these while on(). `bytes` is rounded; `died` is called before the memory can be reused.
  void born(Bytes bytes);
  void died(std::uint64_t address, Bytes bytes);
  /// There are that many bytes of model state from now on, also while off.
  void set_model_state(Bytes bytes);
  /// The allocated block, which has been born(), holds model state from now on.
  void became_model_state(std::uint64_t address, Bytes bytes);
  /// A block of model state is freed. Call it before set_model_state().
  void model_state_died(std::uint64_t address);
  /// A storage of the model state, of that many bytes, is used from now on until it is idle.
  /// `storage` identifies it in every step. `written`: the uses change it. Both are ignored while
  /// off and in the optimizer phase.
  void model_state_used(std::uint64_t storage, Bytes bytes, bool written);
  void model_state_idle(std::uint64_t storage);
  /// Sets the allocated bytes, for allocators that report sizes of blocks only afterwards.
  void settle(Bytes allocated);

  /// The block at `address` has `bytes` of a storage that this step saved, until it is freed.
  void saved(std::uint64_t step, std::uint64_t address, Bytes bytes);

  /// As saved(), for an offloadable storage of that step: the free of the block begins an absence
  /// of `storage`.
  void watch(std::uint64_t step, std::uint64_t address, std::size_t storage, Bytes bytes);
  /// The storage is on the device again: its absence, if any, ends. It may have fewer bytes than
  /// before: `still_offloaded` of them are still offloaded.
  void present(std::uint64_t step, std::size_t storage, Bytes still_offloaded = Bytes{});

  /// The storage will not be used again: its absence, if any, ends, and the free of its block
  /// begins none.
  void ended(std::uint64_t step, std::size_t storage);

  /// The storage was used, and is available: StepCurve::Ask.
  void asked(std::uint64_t step, std::size_t storage, std::size_t product);

  /// The storage was recomputed since that event(); its additional peak bytes are recorded.
  void computed(std::uint64_t step, std::size_t storage, std::size_t since);

  /// The running step so far, as if it ended now; empty if none is running.
  [[nodiscard]] StepCurve so_far() const;

  /// The bytes allocated when the running step began, and now, besides model state; zero if none is
  /// running.
  [[nodiscard]] Bytes allocated_at_begin() const;
  [[nodiscard]] Bytes allocated() const;
  /// The index of the last event.
  [[nodiscard]] std::size_t event() const;
  /// The peak so far, with model state.
  [[nodiscard]] Bytes peak() const;
  /// The peak besides all model state since the last call, or since the step began; zero if there
  /// was no event.
  Bytes take_recent_peak();

 private:
  struct SavedBlock {
    std::uint64_t bytes = 0;
    std::optional<std::size_t> storage;  // whose absence begins when the block is freed
  };

  struct Offloaded {
    std::size_t from = 0;
    std::uint64_t bytes = 0;
  };

  /// A storage of the model state in the running step.
  struct UsedModelState {
    std::size_t count = 0;
    std::size_t idle_from = 0;  // zero while it is used
    StepCurve::ModelStateUses uses{};
  };

  void put(std::uint64_t allocated) SPILLWAY_REQUIRES(mutex_);
  void take_uses(StepCurve& curve) SPILLWAY_REQUIRES(mutex_);
  void end_absences(StepCurve& curve) const SPILLWAY_REQUIRES(mutex_);
  SavedBlock& save(std::uint64_t address, Bytes bytes) SPILLWAY_REQUIRES(mutex_);
  /// Records that saved storages have that many bytes more (fewer: modulo 2^64) on the device.
  void add_saved(std::uint64_t bytes) SPILLWAY_REQUIRES(mutex_);
  /// Changes the offloaded bytes of the storage from the last event on.
  void change_offloaded(std::size_t storage, std::uint64_t bytes) SPILLWAY_REQUIRES(mutex_);

  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::int64_t model_state_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  /// Blocks that became model state in the running step, by address, and their bytes.
  std::unordered_map<std::uint64_t, std::uint64_t> became_ SPILLWAY_GUARDED_BY(mutex_);
  std::int64_t became_bytes_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  StepCurve curve_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t recent_peak_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::optional<std::size_t> optimizer_begin_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, SavedBlock> saved_ SPILLWAY_GUARDED_BY(mutex_);  // by address
  std::unordered_map<std::size_t, Offloaded> offloaded_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<std::size_t, std::uint64_t> watched_ SPILLWAY_GUARDED_BY(mutex_);  // addresses
  std::unordered_map<std::uint64_t, UsedModelState> used_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
