// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/claims.h"

#include <array>
#include <iterator>

namespace conformance {
namespace {

struct Disagreement {
  const char* backend;
  const char* claim;
  const char* why;
};

// Where a backend is known to answer otherwise. A line goes when the backend meets the claim; a
// line for the real GPU means that the claim, or the emulation that follows it, is wrong.
constexpr std::array<Disagreement, 0> kKnown{};

}  // namespace

const char* known_disagreement(const std::string& backend, const std::string& claim) {
  for (const Disagreement& each : kKnown) {
    if (backend == each.backend && claim == each.claim) return each.why;
  }
  return nullptr;
}

}  // namespace conformance
