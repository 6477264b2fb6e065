// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/pause_fixture.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

namespace spillway {
namespace {

/// Random allocations, frees, work on two streams, pauses and resumes, and what must be in the
/// blocks.
class PauseModelTest : public PauseManagerTest {
 protected:
  struct Expected {
    TagId tag;
    Bytes size;
    driver::Stream stream;
    int value;  // -1: unspecified
    bool here = true;
  };

  static constexpr int kTags = 4;

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  TagId any_tag() { return TagId{static_cast<std::uint32_t>(10 + below(kTags))}; }

  std::map<driver::DevicePtr, Expected>::iterator any() {
    return std::next(model_.begin(), static_cast<std::ptrdiff_t>(below(model_.size())));
  }

  void write(driver::DevicePtr at, Expected& block) {
    block.value = static_cast<int>(below(250)) + 1;
    set_bytes_(at.address(),
               static_cast<unsigned char>(block.value),
               block.size.count(),
               block.stream.handle());
  }

  void add() {
    // An integer of granules, less, more, and small ones that share a chunk.
    const Bytes sizes[] = {512_B, 100_KiB, 1_MiB, 2_MiB, 3_MiB + 512_B, 6_MiB};
    const Bytes size = sizes[below(std::size(sizes))] - Bytes{below(300)};
    const TagId tag = any_tag();
    const driver::Stream stream = below(2) == 0 ? main_ : side_;
    const auto at = heap_->allocate(size, stream, tag);
    ASSERT_TRUE(at.ok()) << at.status().message();
    allocated_.push_back(at.value());
    Expected block{tag, size, stream, -1, true};
    write(at.value(), block);
    ASSERT_TRUE(model_.emplace(at.value(), block).second) << "an address was given twice";
  }

  void remove() {
    const auto block = any();
    release(block->first);
    model_.erase(block);
  }

  void work() {
    const auto block = any();
    if (!block->second.here) return;
    expect_contents(block->first, block->second);
    if (below(2) == 0) return write(block->first, block->second);
    // By the other stream, after its own, and known to the heap.
    const driver::Stream other = block->second.stream == main_ ? side_ : main_;
    table_.StreamSynchronize(block->second.stream.handle());
    heap_->record_use(block->first, other);
    const driver::Stream own = std::exchange(block->second.stream, other);
    write(block->first, block->second);
    block->second.stream = own;
    if (below(2) == 0)
      table_.StreamSynchronize(other.handle());
    else
      pause_all_of(block->second.tag, Contents::kKept);
    table_.StreamSynchronize(other.handle());
  }

  void pause_all_of(TagId tag, Contents contents) {
    ASSERT_TRUE(pause(tag, contents).ok());
    for (auto& [at, block] : model_) {
      if (block.tag != tag || !block.here) continue;
      block.here = false;
      if (contents == Contents::kDiscarded) block.value = -1;
    }
  }

  void resume_all_of(TagId tag) {
    ASSERT_TRUE(resume(tag).ok());
    for (auto& [at, block] : model_) {
      if (block.tag != tag || block.here) continue;
      block.here = true;
      expect_contents(at, block);
    }
  }

  void expect_contents(driver::DevicePtr at, const Expected& block) {
    if (block.value < 0) return;
    std::vector<unsigned char> seen(block.size.count());
    table_.MemcpyDtoHAsync(seen.data(), at.address(), seen.size(), block.stream.handle());
    table_.StreamSynchronize(block.stream.handle());
    EXPECT_EQ(value_of(seen), block.value);
  }

  void expect_accounting() {
    EXPECT_EQ(heap_->view().check(), "");
    Bytes paused;
    for (const auto& [at, block] : model_) {
      if (!block.here) paused += block.size;
    }
    EXPECT_EQ(pauses_->stats().paused, paused);
    EXPECT_EQ(heap_->stats().allocated_blocks, model_.size());
    EXPECT_EQ(offloaded_.load(), pauses_->stats().on_host.count());
  }

  std::mt19937_64 random_;
  std::map<driver::DevicePtr, Expected> model_;
};

TEST_F(PauseModelTest, WhateverIsMovedNothingIsLost) {
  const char* const given = std::getenv("OPERATIONS");
  const int operations = given == nullptr ? 400 : std::atoi(given);
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << ", " << operations << " operations\n";
  random_.seed(seed);
  for (int operation = 0; operation < operations && !HasFailure(); ++operation) {
    const std::uint64_t kind = below(20);
    if (model_.empty() || (kind < 6 && model_.size() < 40)) {
      add();
    } else if (kind < 10) {
      remove();
    } else if (kind < 15) {
      work();
    } else if (kind < 17) {
      pause_all_of(any_tag(), below(4) == 0 ? Contents::kDiscarded : Contents::kKept);
    } else if (kind < 19) {
      resume_all_of(any_tag());
    } else {
      heap_->trim_sync();
    }
    if (operation % 16 == 0) expect_accounting();
  }
  for (int tag = 0; tag < kTags; ++tag)
    resume_all_of(TagId{static_cast<std::uint32_t>(10 + tag)});
  expect_accounting();
}

}  // namespace
}  // namespace spillway
