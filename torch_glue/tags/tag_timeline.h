// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <cstdint>

namespace spillway {

/// The tag that was current when an operation was recorded, without data in its node. Autograd
/// numbers a thread's nodes in creation order, so recording the numbers at which the thread's tag
/// changes is sufficient.

/// Records the thread's current tag, from its next node on, if it has changed. Bounded: the last
/// 16384 changes of a thread are kept.
void note_tag();

/// The tag under which `thread` (autograd's thread number) created its node `number`. kUntagged if
/// none was open or the record has been dropped.
/// Threads: safe.
TagId tag_at(std::uint64_t thread, std::uint64_t number);

}  // namespace spillway
