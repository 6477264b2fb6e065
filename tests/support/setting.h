// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace spillway {

/// The number in a variable of the environment, such as TEST_SEED, or `otherwise` without it.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets it
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace spillway
