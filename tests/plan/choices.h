// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/ratio_chooser.h"

#include <gtest/gtest.h>

#include <random>

/// Steps that a RatioChooser is offered.
namespace spillway {

using namespace literals;
using Choice = RatioChooser::Choice;
using Sizes = std::vector<Bytes>;

inline Ratio ratio(double value) {
  return Ratio::of(value).value();
}

/// Offers a whole step without closing it; a waiting storage that is offloaded by its end counts as
/// offloaded. `nodes`: of the storages, none for a node of each one's own.
inline std::vector<Choice> offer(RatioChooser& chooser,
                                 const Sizes& sizes,
                                 const std::vector<std::uint64_t>& nodes = {}) {
  std::vector<Choice> choices;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    choices.push_back(nodes.empty() ? chooser.choose(sizes[index])
                                    : chooser.choose(sizes[index], nodes[index]));
    for (const std::size_t due : chooser.take_due()) {
      EXPECT_EQ(choices[due], Choice::kWait);
      choices[due] = Choice::kOffload;
    }
  }
  return choices;
}

inline std::vector<Choice> step(RatioChooser& chooser, const Sizes& sizes) {
  std::vector<Choice> choices = offer(chooser, sizes);
  chooser.end_step();
  return choices;
}

inline Bytes sum(const Sizes& sizes) {
  Bytes all;
  for (const Bytes size : sizes)
    all += size;
  return all;
}

/// At most the share, and less than `largest` below it.
inline testing::AssertionResult meets(const RatioChooser& chooser, Bytes largest) {
  const Bytes share = chooser.ratio().share_of(chooser.seen_bytes());
  if (chooser.offloaded_bytes() > share) {
    return testing::AssertionFailure()
           << chooser.offloaded_bytes().count() << " offloaded, over " << share.count();
  }
  const Bytes missing = share - chooser.offloaded_bytes();
  if (missing.zero() || missing < largest) return testing::AssertionSuccess();
  return testing::AssertionFailure() << missing.count() << " missing of " << share.count();
}

/// Sizes as training has them: many equal ones, some tiny, a few huge.
inline Sizes random_sizes(std::mt19937_64& random) {
  const std::uint64_t unit = 1 + random() % 100000;
  Sizes sizes(1 + random() % 60);
  for (Bytes& size : sizes) {
    const std::uint64_t kind = random() % 4;
    size = Bytes{kind == 0   ? unit
                 : kind == 1 ? 1 + random() % 16
                 : kind == 2 ? unit * 64
                             : 1 + random() % unit};
  }
  return sizes;
}

}  // namespace spillway
