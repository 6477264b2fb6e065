// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace spillway::hooks {

/// Callbacks for the ranges that threads push and pop, on those threads. Each domain has a stack of
/// its own; null is the domain of ranges without one.
struct RangeListener {
  /// The name is "" if it does not consist of 8-bit characters.
  void (*push)(const void* domain, const char* name) = nullptr;
  void (*pop)(const void* domain) = nullptr;
};

/// Sets the process's listener, which must stay valid. For ranges that are already open, only the
/// pop is reported.
/// Threads: safe.
void set_range_listener(const RangeListener* listener);

/// NVTX's InitializeInjectionNvtx2: attaches to one copy of NVTX in this process. Each library with
/// ranges has a copy of its own. Without a listener, a range then costs one load. Returns 1, or 0
/// for an unsupported NVTX, which then works without listener.
int attach_to_nvtx(const void* (*tables)(std::uint32_t id));

}  // namespace spillway::hooks
