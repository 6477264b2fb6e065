// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spillway {

/// A CUDA device ordinal in this process.
enum class DeviceId : std::int32_t {};

/// A name that says what memory is for; `kUntagged` is the empty name. See allocator/tag.
enum class TagId : std::uint32_t { kUntagged = 0 };

/// A part of a heap whose live blocks share no memory with other parts; see allocator/heap.
enum class PoolId : std::uint64_t { kShared = 0 };

}  // namespace spillway
