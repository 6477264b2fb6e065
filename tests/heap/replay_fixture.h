// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/heap/heap_fixture.h"

#include <cstdint>
#include <vector>

namespace spillway {

/// A heap that replays steps.
class ReplayTest : public HeapTest {
 protected:
  using Addresses = std::vector<driver::DevicePtr>;

  void SetUp() override {
    HeapTest::SetUp();
    HeapOptions options;
    options.replay = true;
    make_heap(options);
  }

  /// Three blocks, of which the second and the third allocated at one time; then the step's end.
  Addresses step(Bytes first = 3_MiB) {
    const auto a = allocate(first);
    free(a);
    const auto b = allocate(64_KiB);
    const auto c = allocate(5_MiB);
    free(b);
    free(c);
    heap_->placement().end_step();
    return {a, b, c};
  }

  /// Steps until one is replayed.
  void learn() {
    step();
    step();
  }

  /// Three steps, of which the last one is replayed; peaks are those of the last one.
  template <typename Step>
  void peaks_of_third(Step step_once) {
    step_once();
    step_once();
    heap_->view().reset_peaks();
    step_once();
  }

  std::uint64_t replayed() { return heap_->stats().replayed_allocations; }

  std::uint64_t mismatches() { return heap_->stats().replay_mismatches; }
};

}  // namespace spillway
