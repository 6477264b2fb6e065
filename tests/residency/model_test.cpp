// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/residency_fixture.h"

#include <cstdlib>
#include <random>

namespace spillway {
namespace {

/// Random stashes, fetches, drops, frees and trims against a model: what each stash holds, and what
/// is held together. SEED repeats a run, TIMES makes it longer.
class ModelTest : public ResidencyFixture {
 protected:
  struct Held {
    Stash stash;
    int value;
    Bytes size;
  };

  static unsigned number(const char* name, unsigned otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
  }

  driver::Stream some_stream() { return random_() % 2 == 0 ? main_ : side_; }

  /// Mostly small, sometimes as large as all of those before together.
  Bytes some_size() { return Bytes{1 + random_() % (random_() % 16 == 0 ? 3000000U : 30000U)}; }

  void stash_something() {
    const driver::Stream stream = some_stream();
    const Bytes size = some_size();
    const int value = static_cast<int>(random_() % 250);
    const driver::DevicePtr block = allocate(size, stream);
    ASSERT_EQ(
        set_bytes_(
            block.address(), static_cast<unsigned char>(value), size.count(), stream.handle()),
        CUDA_SUCCESS);
    Result<Stash> made = residency_->stash(block, size, stream);
    ASSERT_TRUE(made.ok()) << made.status().message();
    held_.push_back({std::move(made).value(), value, size});
    free(block);
  }

  Held& something() {
    std::swap(held_.at(random_() % held_.size()), held_.back());
    return held_.back();
  }

  void fetch_something() {
    Held& held = something();
    const driver::Stream stream = some_stream();
    const driver::DevicePtr block = allocate(held.size, stream);
    const auto fence =
        residency_->fetch(held.stash,
                          block,
                          stream,
                          random_() % 2 == 0 ? CopyPriority::kPrefetch : CopyPriority::kDemand);
    ASSERT_TRUE(fence.ok()) << fence.status().message();
    if (random_() % 2 == 0) {
      ASSERT_TRUE(driver::Timeline::wait(stream, fence.value()).ok());
      expect_value(block, held, stream);
    }
    free(block);  // in the other half while the copy is under way, and nothing has seen it
  }

  void expect_value(driver::DevicePtr block, const Held& held, driver::Stream stream) {
    std::vector<std::byte> bytes(held.size.count());
    ASSERT_EQ(table_.MemcpyDtoHAsync(bytes.data(), block.address(), bytes.size(), stream.handle()),
              CUDA_SUCCESS);
    ASSERT_EQ(table_.StreamSynchronize(stream.handle()), CUDA_SUCCESS);
    ASSERT_EQ(value_of(bytes), held.value);
  }

  void drop_something() {
    something().stash = {};
    held_.pop_back();
  }

  void one_step() {
    const unsigned die = static_cast<unsigned>(random_() % 100);
    if (die < 38 || held_.empty()) {
      stash_something();
    } else if (die < 60) {
      fetch_something();
    } else if (die < 98) {
      drop_something();
    } else if (die < 99) {
      arena_->trim_sync();
    } else {
      arena_->reset_peak();
    }
  }

  void expect_accounting() {
    Bytes on_host;
    Bytes slots;
    for (const Held& held : held_) {
      on_host += held.size;
      slots += held.size.rounded_up(64_B);
    }
    const HostArenaStats stats = arena_->stats();
    ASSERT_EQ(residency_->stats().on_host, on_host);
    ASSERT_GE(stats.in_slots, slots);
    ASSERT_GE(stats.registered, stats.in_slots);
    ASSERT_GE(stats.in_slots_peak, slots);  // those that only fences hold do not count
    ASSERT_LE(residency_->stats().offloaded, on_host);
  }

  const unsigned seed_ = number("SEED", std::random_device{}());
  std::mt19937_64 random_{seed_};
  std::vector<Held> held_;
};

TEST_F(ModelTest, EveryStashIsFetchedBitForBitWithCorrectAccounting) {
  const std::uint64_t reports = spillway_emulator_count("unordered");
  const unsigned steps = 5000 * number("TIMES", 1);
  for (unsigned step = 0; step < steps; ++step) {
    one_step();
    if (step % 500 == 0) expect_accounting();
    ASSERT_FALSE(HasFatalFailure()) << "SEED=" << seed_ << " step " << step;
  }
  while (!held_.empty())
    drop_something();
  synchronize();

  arena_->reset_peak();
  EXPECT_TRUE(arena_->trim_sync());
  EXPECT_EQ(arena_->stats().registered, 0_B) << "SEED=" << seed_;
  EXPECT_EQ(offloaded_.load(), 0U) << "SEED=" << seed_;
  EXPECT_EQ(spillway_emulator_count("unordered"), reports) << "SEED=" << seed_;
}

}  // namespace
}  // namespace spillway
