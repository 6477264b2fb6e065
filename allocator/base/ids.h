// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spillway {

/// A CUDA device ordinal in this process.
enum class DeviceId : std::int32_t {};

/// A name that says what memory is for; `kUntagged` is the empty name. See allocator/tag.
enum class TagId : std::uint32_t { kUntagged = 0 };

}  // namespace spillway
