// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/step/cannot_help.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway {

/// Why a saved tensor does not count as offloadable.
enum class SkipReason {
  kParameter,            // a parameter or a view of one: resident anyway
  kReferencedElsewhere,  // was still allocated at an earlier unpack: referenced elsewhere
  kNotOnDevice,          // CPU, meta, or no storage
  kNotStrided,           // sparse, quantized, nested, mkldnn
  kSubclass,             // Python subclass, functorch wrapper, fake tensor
  kTiny,                 // below RuntimeOptions::min_bytes
  kNoHostMemory,         // pinned budget or machine limit reached
  kCapturing,            // the stream is being captured into a graph
  kCannotHelp,           // offloading would not lower the peak: StepSession::offload_if_it_helps()
  kCount,
};
std::string_view skip_reason_name(SkipReason reason);

struct SkipCount {
  std::uint64_t storages = 0;
  Bytes bytes;
};

/// One step of one tag. An offloaded storage leaves the device whole; only the bytes covered by its
/// saved tensors are copied.
struct TagStepStats {
  std::uint64_t step = 0;
  Bytes offloadable;        // storages that were saved and can be offloaded, each once
  Bytes offloaded;          // offloaded storages among them
  Bytes copied;             // to the host
  Bytes fetched;            // to the device
  Bytes left_to_recompute;  // of other storages, left to recompute
  Bytes recomputed;         // recomputed storages, each time
  std::array<SkipCount, static_cast<std::size_t>(SkipReason::kCount)> skipped{};

  /// Counts one more storage that stays.
  void skip(SkipReason reason, Bytes size) {
    SkipCount& count = skipped.at(static_cast<std::size_t>(reason));
    ++count.storages;
    count.bytes += size;
  }
};

struct TagStats {
  TagId tag;
  double ratio;
  TagStepStats running;
  TagStepStats last;
  std::uint64_t plan_mismatches;
};

/// Statistics of a StepSession.
struct SessionStats {
  std::uint64_t steps = 0;  // ended since the process started
  std::int64_t saved_tensor_handles = 0;
  std::vector<TagStats> tags{};
  CannotHelp cannot_help{};  // kNone if offloading lowers the peak, or while that is unknown
};

}  // namespace spillway
