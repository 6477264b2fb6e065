// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <cstdint>

namespace spillway {

/// Which tag was current when an operation was recorded, without a word in its node: autograd
/// numbers a thread's nodes in the order of their making, so it is enough to know at which numbers
/// the thread's tag has changed.

/// This thread's current tag may have changed: remembers it, from the next node on. Bounded: the
/// last 16384 changes of a thread are known.
void note_tag();

/// The tag under which `thread` (autograd's number of it) made its node `number`; kUntagged where
/// none was open or it is not known any more. Threads: safe.
TagId tag_at(std::uint64_t thread, std::uint64_t number);

}  // namespace spillway
