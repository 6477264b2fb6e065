// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway {

/// Why a storage of model state stays on the device. The first group is never managed, the second
/// is managed and stays from now on, the third stays for now.
enum class ResidentReason : std::uint8_t {
  kNone,
  kTiny,          // copying it would free next to nothing
  kOtherMemory,   // not a block of Spillway's heap, or of a graph's pool
  kSparse,        // part of a sparse tensor
  kProcessGroup,  // collectives work on it

  kGraph,    // used in a CUDA graph
  kAddress,  // another library has its address: DLPack, __cuda_array_interface__
  kShared,   // other processes have its memory mapped
  kWrapped,  // part of a sparse or nested tensor that an operator made
  kKept,     // the program keeps it: keep_on_device
  kEnded,    // its storage has ended, or has other memory

  kDataPtr,       // the program has its address: until the step ends
  kReferenced,    // a tensor that the guard does not see refers to it
  kNoHostMemory,  // no host memory could be pinned for its copy
  kCount,
};

/// The name that statistics have.
const char* resident_reason_name(ResidentReason reason);

struct ResidentCount {
  std::uint64_t storages = 0;
  Bytes bytes;
};

/// By reason.
using ResidentCounts = std::array<ResidentCount, static_cast<std::size_t>(ResidentReason::kCount)>;

inline void count(ResidentCounts& counts, ResidentReason reason, Bytes size) {
  ResidentCount& of = counts.at(static_cast<std::size_t>(reason));
  ++of.storages;
  of.bytes += size;
}

}  // namespace spillway
