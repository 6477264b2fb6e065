// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spillway {

/// A CUDA device ordinal in this process.
enum class DeviceId : std::int32_t {};

/// The name of a purpose of memory; `kUntagged` is the empty name. See allocator/tag.
enum class TagId : std::uint32_t { kUntagged = 0 };

/// A part of a heap whose allocated blocks share no memory with other parts; see allocator/heap.
///   from kFirstApart on: separate only; free memory is cached as in kShared
///   others: replays of the graphs captured in them still write to free memory
enum class PoolId : std::uint64_t { kShared = 0, kFirstApart = 1ULL << 63U };

constexpr bool written_while_free(PoolId pool) {
  return pool != PoolId::kShared && pool < PoolId::kFirstApart;
}

}  // namespace spillway
