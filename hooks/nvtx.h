// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace spillway::hooks {

/// Told of the ranges that threads push and pop, on those threads. Each domain has a stack of its
/// own; null is the one of ranges without a domain.
struct RangeListener {
  /// The name is "" for one that is not in 8-bit characters.
  void (*push)(const void* domain, const char* name) = nullptr;
  void (*pop)(const void* domain) = nullptr;
};

/// From now on; one for the process, which must stay. Ranges that are open are reported when they
/// end. Threads: safe.
void set_range_listener(const RangeListener* listener);

/// What NVTX calls InitializeInjectionNvtx2: attaches to one copy of NVTX in this process, of which
/// each library that has ranges has one. Without a listener a range costs one load then.
/// Returns 1, or 0 for an NVTX that is not understood, which then goes on without.
int attach_to_nvtx(const void* (*tables)(std::uint32_t id));

}  // namespace spillway::hooks
