// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace spillway {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "spillway: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace spillway
