// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/driver/faulted_calls.h"
#include "tests/heap/heap_fixture.h"

#include <array>
#include <string>

namespace spillway {
namespace {

/// Each call of one driver function fails in turn, until a run of the scenario does not reach it.
class EveryFaultTest : public HeapTest, public testing::WithParamInterface<const char*> {
 protected:
  driver::DevicePtr ask(Bytes size, driver::Stream stream, PoolId pool = PoolId::kShared) {
    const auto block = heap_->allocate(size, stream, TagId{1}, pool);
    if (!block.ok()) {
      EXPECT_TRUE(block.status().code() == Code::kDriver ||
                  block.status().code() == Code::kOutOfDeviceMemory)
          << block.status().message();
      return {};
    }
    return block.value();
  }

  /// Without the fixture's heap, and without a device that is current already: each call makes it
  /// so.
  void begin() {
    heap_.reset();
    current_.reset();
  }

  void end() {
    current_ = std::make_unique<driver::CurrentDevice>(table_, device_.context);
    make_heap({});
  }

  /// Something of everything that makes the heap call the driver.
  void scenario() {
    const auto first = ask(6_MiB, main_);
    const auto second = ask(3_MiB, main_);
    const auto small = ask(1_KiB, side_);
    const auto pooled = ask(4_MiB, side_, PoolId{3});
    heap_->record_use(first, side_);
    heap_->record_use(second, side_);
    heap_->free(first);
    const auto third = ask(5_MiB, main_);
    const auto fourth = ask(20_MiB, main_);
    if (second != driver::DevicePtr{}) {
      const std::array evicted = {second};
      EXPECT_TRUE(heap_->evict(evicted).ok());
      static_cast<void>(heap_->restore(evicted).ok());
    }
    heap_->free(pooled);
    heap_->release_pool(PoolId{3});
    static_cast<void>(heap_->enable_peer(DeviceId{1}).ok());
    heap_->free(second);
    heap_->free(small);
    heap_->trim_sync();
    const auto fifth = ask(200_MiB, side_);
    EXPECT_EQ(heap_->view().check(), "");
    for (const driver::DevicePtr block : {third, fourth, fifth})
      heap_->free(block);
  }
};

TEST_P(EveryFaultTest, EachFaultIsATypedErrorWithCorrectAccountingAndNoLeak) {
  const std::string name = GetParam();
  // Memory that the driver does not take back is lost, and the accounting go on counting it.
  const bool loses = name == "cuMemRelease";
  begin();
  table_.EventQuery = [](CUevent event) {
    const CUresult result = driver::api().value()->EventQuery(event);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
  };
  int n = 0;
  for (bool reached = true; reached && n < 500;) {
    ++n;
    const auto used = spillway_emulator_used(0);
    make_heap({});
    const auto calls = spillway_emulator_count(name.c_str());
    const std::string spec = name + ":" + std::to_string(n) + "=unknown";
    ASSERT_EQ(spillway_emulator_fault(spec.c_str()), nullptr);
    scenario();
    reached = spillway_emulator_count(name.c_str()) - calls >= static_cast<std::uint64_t>(n);
    spillway_emulator_fault(nullptr);

    EXPECT_EQ(heap_->view().check(), "") << spec;
    scenario();
    heap_->trim_sync();
    EXPECT_EQ(heap_->stats().allocated, 0_B) << spec;
    EXPECT_EQ(heap_->stats().reserved.count(), spillway_emulator_used(0) - used) << spec;
    EXPECT_EQ(!heap_->stats().reserved.zero(), loses && reached) << spec;
    heap_.reset();
    if (HasFailure()) break;
  }
  EXPECT_GT(n, 1) << name << " is not called";
  end();
}

INSTANTIATE_TEST_SUITE_P(Functions,
                         EveryFaultTest,
                         testing::ValuesIn(kFaultedInHeap),
                         [](const auto& test) { return std::string(test.param); });

/// Each call of one driver function fails in turn, from a heap's first to its last.
class EveryFaultOfALifeTest : public EveryFaultTest {};

TEST_P(EveryFaultOfALifeTest, EachFaultIsATypedErrorAndTheNextHeapWorks) {
  const std::string name = GetParam();
  begin();
  const auto used = spillway_emulator_used(0);
  int n = 0;
  for (bool reached = true; reached && n < 500;) {
    ++n;
    const auto calls = spillway_emulator_count(name.c_str());
    const std::string spec = name + ":" + std::to_string(n) + "=unknown";
    ASSERT_EQ(spillway_emulator_fault(spec.c_str()), nullptr);
    auto made = Heap::create(device_, {});
    if (made.ok()) {
      heap_ = std::move(made).value();
      scenario();
      heap_.reset();
    } else {
      EXPECT_EQ(made.status().code(), Code::kDriver) << spec;
    }
    reached = spillway_emulator_count(name.c_str()) - calls >= static_cast<std::uint64_t>(n);
    spillway_emulator_fault(nullptr);

    EXPECT_EQ(spillway_emulator_used(0), used) << spec;
    make_heap({});
    scenario();
    heap_.reset();
    EXPECT_EQ(spillway_emulator_used(0), used) << spec;
    if (HasFailure()) break;
  }
  EXPECT_GT(n, 1) << name << " is not called";
  end();
}

INSTANTIATE_TEST_SUITE_P(Functions,
                         EveryFaultOfALifeTest,
                         testing::ValuesIn(kFaultedInHeapsLife),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace spillway
