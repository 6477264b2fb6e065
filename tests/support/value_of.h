// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

namespace spillway {

/// The value of all bytes, or -1 where they differ. memcmp() compares them: tests are not
/// optimized, so that a loop over a few megabytes would take longer than the rest of a test.
template <typename Byte>
int value_of(const std::vector<Byte>& bytes) {
  const bool same =
      !bytes.empty() && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
  return same ? static_cast<int>(bytes.front()) : -1;
}

}  // namespace spillway
