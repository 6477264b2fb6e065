// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spillway/torch/api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// What a region does besides its ratio.
struct RegionSettings {
  /// Storages of fewer bytes stay. Without a value: SPILLWAY's default, 1024.
  std::optional<std::uint64_t> min_bytes{};
  /// The most bytes of the tag that are on the device again before the backward pass wants them; 0:
  /// nothing is fetched early. Without a value: one storage, whatever its size.
  std::optional<std::uint64_t> prefetch_headroom{};
  /// Over PyTorch's own allocator: this many storages that have moved may still hold device memory
  /// for their copy; at the next one the current stream waits for the earliest copy.
  std::optional<std::size_t> max_in_flight{};
};

/// For C++ users: tensors that autograd saves on this thread while it lives may go to the host, at
/// most `offload_ratio` of their bytes under `tag`. Works with and without Python; regions nest.
///
/// Threads: ended on the thread that began it.
/// Errors: c10::ValueError for a ratio outside [0, 1], for a tag that is no path (check_tag_name)
/// and for one that has another ratio in this step.
class SPILLWAY_TORCH_API OffloadRegion {
 public:
  explicit OffloadRegion(double offload_ratio,
                         std::string_view tag = "",
                         const RegionSettings& settings = {});
  ~OffloadRegion();
  OffloadRegion(const OffloadRegion&) = delete;
  OffloadRegion& operator=(const OffloadRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Tensors that are saved on this thread while it lives are not kept where the operators that made
/// them can run again on what the graph keeps anyway; the backward pass runs those again, on the
/// same bits (docs/recompute.md). What cannot be recomputed moves, or stays, as the regions
/// around and inside say.
///
/// Threads: ended on the thread that began it. Errors: c10::ValueError as OffloadRegion.
class SPILLWAY_TORCH_API RecomputeRegion {
 public:
  RecomputeRegion();
  ~RecomputeRegion();
  RecomputeRegion(const RecomputeRegion&) = delete;
  RecomputeRegion& operator=(const RecomputeRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Tensors that are saved on this thread while it lives stay on the device, whatever regions are
/// around it. Threads: ended on the thread that began it.
class SPILLWAY_TORCH_API KeepingRegion {
 public:
  KeepingRegion();
  ~KeepingRegion();
  KeepingRegion(const KeepingRegion&) = delete;
  KeepingRegion& operator=(const KeepingRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Bytes of one tag in the last step that saved anything under it.
struct TagTotals {
  std::uint64_t offloadable = 0;  // of storages that were saved and could move, each once
  std::uint64_t moved = 0;        // of those that did
  std::uint64_t copied = 0;       // to the host: what their saved tensors cover
  std::uint64_t fetched = 0;      // back
  /// Of other storages, neither kept nor moved, each once; and of those that were remade.
  std::uint64_t left_to_recompute = 0;
  std::uint64_t recomputed = 0;
  /// Of storages that stayed, by reason; the names are those of Python's spillway.stats().
  std::map<std::string, std::uint64_t> skipped{};
};

/// All zero for a tag that nothing was saved under. What a RecomputeRegion outside all others does
/// is counted under "recompute". Threads: safe.
SPILLWAY_TORCH_API TagTotals last_step(std::string_view tag = "");

/// Ends the training step: plans are made and statistics latched. Errors: BudgetError where it has
/// missed the budget of a BudgetRegion.
SPILLWAY_TORCH_API void end_step();

}  // namespace spillway
