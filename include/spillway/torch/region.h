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

/// Options of a region besides its ratio.
struct RegionSettings {
  /// Storages of fewer bytes stay on the device. Without a value: 1024.
  std::optional<std::uint64_t> min_bytes{};
  /// Maximum bytes of the tag that are fetched ahead of their use in the backward pass; 0: no
  /// prefetch. Without a value: one storage, whatever its size.
  std::optional<std::uint64_t> prefetch_headroom{};
  /// With PyTorch's own allocator: the maximum number of offloaded storages that still occupy
  /// device memory because their copy out runs. Beyond it the current stream waits for the earliest
  /// copy.
  std::optional<std::size_t> max_in_flight{};
};

/// For C++ users: offloads tensors that autograd saves on this thread during its lifetime, at most
/// `offload_ratio` of their bytes under `tag`. Works with and without Python. Regions nest; the
/// innermost one applies.
///
/// Threads: must be destroyed on the thread that created it; otherwise the process aborts.
/// Errors: c10::ValueError for a ratio outside [0, 1], a tag with another ratio in this step, or an
/// invalid tag. A tag is "" or names joined by "/", none of them empty, without "*" and control
/// characters, of at most 256 bytes.
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

/// Recomputes tensors that are saved on this thread during its lifetime, if their operators can run
/// again on tensors that the graph keeps anyway. The recomputation is bit-identical
/// (docs/recompute.md). The regions around and inside it decide whether the other tensors are
/// offloaded.
///
/// Threads: must be destroyed on the thread that created it; otherwise the process aborts.
/// Errors: c10::ValueError if the tag "recompute" has another ratio in this step.
class SPILLWAY_TORCH_API RecomputeRegion {
 public:
  RecomputeRegion();
  ~RecomputeRegion();
  RecomputeRegion(const RecomputeRegion&) = delete;
  RecomputeRegion& operator=(const RecomputeRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Keeps tensors that are saved on this thread during its lifetime on the device, whatever regions
/// are around it.
/// Threads: must be destroyed on the thread that created it; otherwise the process aborts.
class SPILLWAY_TORCH_API KeepingRegion {
 public:
  KeepingRegion();
  ~KeepingRegion();
  KeepingRegion(const KeepingRegion&) = delete;
  KeepingRegion& operator=(const KeepingRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Bytes of one tag in the last step that saved a tensor under it.
struct TagTotals {
  std::uint64_t offloadable = 0;        // storages that were saved and can be offloaded, each once
  std::uint64_t offloaded = 0;          // offloaded among them
  std::uint64_t copied = 0;             // to the host: bytes covered by saved tensors
  std::uint64_t fetched = 0;            // to the device
  std::uint64_t left_to_recompute = 0;  // released for recomputation, each storage once
  std::uint64_t recomputed = 0;         // recomputed so far
  /// Bytes of storages that stayed on the device, by reason, with the names of Python's
  /// spillway.stats().
  std::map<std::string, std::uint64_t> skipped{};
};

/// All zero for a tag without saved tensors. A RecomputeRegion outside of all other regions counts
/// under "recompute".
/// Threads: safe.
SPILLWAY_TORCH_API TagTotals last_step(std::string_view tag = "");

/// Ends the training step. Call it after the optimizer's step. Statistics of the step are then
/// available (last_step()), and the next steps are planned.
/// Errors: BudgetError if the step has missed the budget of a BudgetRegion. The first step that
/// ends so only warns.
SPILLWAY_TORCH_API void end_step();

}  // namespace spillway
