// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string_view>

namespace spillway {

/// Regions of a program that opens none, around its NVTX ranges: "mlp=0.8,attn*=0.5" gives a range
/// whose name fits a pattern, with * and ? as in file names, or does so from a dot on, that share
/// under the pattern's name as its tag. The first pattern that fits counts. Once, before the
/// program's first range. Errors: kInvalidArgument for any other text.
Status set_named_regions(std::string_view ratios);

/// A range begins or ends on this thread, in a stack of its domain.
void range_pushed(const void* domain, const char* name);
void range_popped(const void* domain);

}  // namespace spillway
