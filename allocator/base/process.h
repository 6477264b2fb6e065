// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace spillway {

/// When a process of this machine began, in the kernel's ticks: with its number, this names one
/// process and no later one. None where it has ended, also where nobody has asked after its end
/// yet.
std::optional<std::uint64_t> start_of(std::int32_t process);

}  // namespace spillway
