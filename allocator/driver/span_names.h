// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::driver {

/// A nonzero number for the name of an operator or kernel, and the inverse. Threads: safe.
std::uint32_t number_span_name(std::string_view name);
std::string span_name(std::uint32_t number);

}  // namespace spillway::driver
