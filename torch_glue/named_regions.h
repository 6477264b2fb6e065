// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string_view>

namespace spillway {

/// Opens regions around a program's NVTX ranges: "mlp=0.8,attn*=0.5" offloads that ratio in a range
/// whose name matches a pattern. The pattern is the region's tag, with * and ? as in file names. It
/// may also match the part of a name after a dot. The first matching pattern applies. Call it once,
/// before the program's first range.
/// Requires: a value that SPILLWAY_TAG_RATIO accepts.
Status set_named_regions(std::string_view ratios);

/// Begins or ends a range on this thread, in the stack of its domain.
void range_pushed(const void* domain, const char* name);
void range_popped(const void* domain);

}  // namespace spillway
