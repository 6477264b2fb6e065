// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap.h"
#include "allocator/residency/pause.h"
#include "allocator/residency/residency.h"
#include "allocator/runtime/cannot_help.h"
#include "allocator/transfer/host_arena.h"

#include <array>
#include <string_view>
#include <vector>

namespace spillway {

/// Why a saved tensor is not among the bytes that can be moved.
enum class SkipReason {
  kParameter,            // a parameter or a view of one: resident anyway
  kReferencedElsewhere,  // was alive at its unpack before: another owner keeps it
  kNotOnDevice,          // CPU, meta, or no storage
  kNotStrided,           // sparse, quantised, nested, mkldnn
  kSubclass,             // Python subclass, functorch wrapper, fake tensor
  kTiny,                 // below RuntimeOptions::min_bytes
  kNoHostMemory,         // pinned budget or machine limit reached
  kCapturing,            // the stream is being captured into a graph
  kCannotHelp,           // offloading would not lower the peak: Runtime::offload_where_it_helps()
  kCount,
};
std::string_view skip_reason_name(SkipReason reason);

struct SkipCount {
  std::uint64_t storages = 0;
  Bytes bytes;
};

/// One step of one tag. A storage that moves leaves the device whole; copied are the bytes that its
/// saved tensors cover.
struct TagStepStats {
  std::uint64_t step = 0;
  Bytes offloadable;        // of storages that were saved and could be moved, each once
  Bytes moved;              // of those that were
  Bytes copied;             // to the host
  Bytes fetched;            // back
  Bytes left_to_recompute;  // of other storages, neither kept nor moved: each can be recomputed
  Bytes recomputed;         // of those that were, each time
  std::array<SkipCount, static_cast<std::size_t>(SkipReason::kCount)> skipped{};

  /// Counts one storage more that stays.
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

struct DeviceStats {
  DeviceId device;
  HeapStats heap;
  HostArenaStats host;
  ResidencyStats residency;
  PauseStats pauses;
};

struct RuntimeStats {
  std::uint64_t steps;  // ended since the process began
  std::int64_t live_handles;
  driver::Counters driver;
  std::vector<TagStats> tags;
  std::vector<DeviceStats> devices;
  CannotHelp cannot_help;  // kNone where offloading lowers the peak, or that is not known yet
};

}  // namespace spillway
