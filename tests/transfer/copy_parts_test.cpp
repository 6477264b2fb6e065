// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/copy_engine.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <cstring>
#include <utility>

namespace spillway {
namespace {

/// Several copies, and large ones, through an engine of the test's own table.
class CopyPartsTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    arena_ = std::make_unique<HostArena>(device_, Bytes{});
    copies_ = CopyEngine::create(device_).value();
  }

  void TearDown() override {
    copies_->drain_sync();
    slots_.clear();
    arena_.reset();
    for (const driver::DevicePtr at : std::exchange(allocated_, {}))
      heap_->free(at);
    heap_->trim_sync();  // it holds no fence of the engine's after this
    copies_.reset();
    HeapTest::TearDown();
  }

  /// A slot whose bytes are all different from those of its neighbors.
  HostSlot& slot(Bytes size, int value) {
    slots_.push_back(arena_->take(size).value());
    fill(slots_.back(), value);
    return slots_.back();
  }

  static void fill(const HostSlot& slot, int value) {
    for (std::uint64_t at = 0; at < slot.size().count(); at += 1U << 10U)
      slot.data()[at] = std::byte(value + static_cast<int>(at >> 20U));
  }

  static bool holds(const HostSlot& slot, int value) {
    for (std::uint64_t at = 0; at < slot.size().count(); at += 1U << 10U) {
      if (slot.data()[at] != std::byte(value + static_cast<int>(at >> 20U))) return false;
    }
    return true;
  }

  /// Copies slots to the device and back into them, erased in between.
  void there_and_back(int slots, Bytes size) {
    slots_.reserve(static_cast<std::size_t>(slots));
    std::vector<CopyIn> in;
    for (int each = 0; each < slots; ++each) {
      HostSlot& filled = slot(size, each);
      in.push_back({filled.bytes(), {}, allocate(size)});
    }
    const driver::Fence arrived = copies_->to_device(in, main_).value();
    ASSERT_TRUE(driver::Timeline::wait_sync(arrived).ok());
    std::vector<CopyOut> out;
    for (std::size_t each = 0; each < in.size(); ++each) {
      fill(slots_[each], 77);
      out.emplace_back(in[each].destination, slots_[each]);
    }
    const driver::Fence written = copies_->to_host(out, main_).value();
    ASSERT_TRUE(driver::Timeline::wait_sync(written).ok());
    for (int each = 0; each < slots; ++each)
      EXPECT_TRUE(holds(slots_[static_cast<std::size_t>(each)], each)) << "slot " << each;
  }

  static std::uint64_t calls(const char* what) { return spillway_emulator_count(what); }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<CopyEngine> copies_;
  std::vector<HostSlot> slots_;
};

TEST_F(CopyPartsTest, ALargeCopyGoesInPartsAndArrivesWhole) {
  const std::uint64_t in = calls("cuMemcpyHtoDAsync");
  const std::uint64_t out = calls("cuMemcpyDtoHAsync");

  there_and_back(1, kCopyPart + kCopyPart + 1_MiB + 1_B);

  EXPECT_EQ(calls("cuMemcpyHtoDAsync"), in + 3);
  EXPECT_EQ(calls("cuMemcpyDtoHAsync"), out + 3);
}

TEST_F(CopyPartsTest, ManySmallCopiesAreOneCallOneMarkerAndOneWait) {
  std::vector<CopyOut> out;
  slots_.reserve(100);
  for (int each = 0; each < 100; ++each)
    out.emplace_back(allocate(4_KiB), slot(4_KiB, each));
  const std::uint64_t batches = calls("cuMemcpyBatchAsync");
  const std::uint64_t single = calls("cuMemcpyDtoHAsync");
  const std::uint64_t marks = calls("cuEventRecord");
  const std::uint64_t waits = calls("cuStreamWaitEvent");

  ASSERT_TRUE(copies_->to_host(out, main_).ok());

  EXPECT_EQ(calls("cuMemcpyBatchAsync"), batches + 1);
  EXPECT_EQ(calls("cuMemcpyDtoHAsync"), single);
  EXPECT_EQ(calls("cuEventRecord"), marks + 2);  // of the producer, and of the copies
  EXPECT_EQ(calls("cuStreamWaitEvent"), waits + 1);
}

TEST_F(CopyPartsTest, ManySmallCopiesArriveEachInItsPlace) {
  there_and_back(50, 3_KiB);
}

TEST_F(CopyPartsTest, CopiesOfAllSizesArriveTogether) {
  there_and_back(3, kCopyPart - 1_MiB);
}

TEST_F(CopyPartsTest, WithADriverThatCopiesOneByOneTheyArriveToo) {
  table_.MemcpyBatchAsync = nullptr;
  const std::uint64_t single = calls("cuMemcpyDtoHAsync");

  there_and_back(20, 3_KiB);

  EXPECT_EQ(calls("cuMemcpyDtoHAsync"), single + 20);
}

TEST_F(CopyPartsTest, CopiesOfOneCallWaitForTheFencesOfAllTheirSlots) {
  slots_.reserve(2);
  std::vector<CopyOut> out = {{allocate(4_KiB), slot(4_KiB, 1)}, {allocate(4_KiB), slot(4_KiB, 2)}};
  slots_[0].fences = {stuck_fence()};
  slots_[1].fences = {stuck_fence()};
  const std::uint64_t waits = calls("cuStreamWaitEvent");

  const driver::Fence written = copies_->to_host(out, main_).value();

  EXPECT_EQ(calls("cuStreamWaitEvent"), waits + 3);
  for (const HostSlot& each : slots_)
    EXPECT_EQ(each.fences, (driver::FenceSet{written}));
}

TEST_F(CopyPartsTest, APartThatFailsIsAnErrorAndNoPartIsUnderWay) {
  HostSlot& large = slot(kCopyPart + kCopyPart, 1);
  const driver::Fence before = stuck_fence();
  large.fences = {before};
  const driver::DevicePtr block = allocate(large.size());
  const Fault<&driver::Api::MemcpyDtoHAsync> fault(table_, 2, CUDA_ERROR_INVALID_VALUE);
  const std::uint64_t syncs = driver::counters().host_syncs;

  EXPECT_EQ(copies_->to_host({block, large}, main_).status().code(), Code::kDriver);

  EXPECT_EQ(driver::counters().host_syncs, syncs + 1);
  EXPECT_EQ(large.fences, (driver::FenceSet{before}));
}

TEST_F(CopyPartsTest, ManyCopiesThatFailAreAnErrorAndTheSlotsStayAsTheyWere) {
  slots_.reserve(2);
  const std::vector<CopyOut> out = {{allocate(4_KiB), slot(4_KiB, 1)},
                                    {allocate(4_KiB), slot(4_KiB, 2)}};
  const driver::Fence before = stuck_fence();
  slots_[1].fences = {before};
  const Fault<&driver::Api::MemcpyBatchAsync> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(copies_->to_host(out, main_).status().code(), Code::kDriver);

  EXPECT_EQ(slots_[1].fences, (driver::FenceSet{before}));
}

TEST_F(CopyPartsTest, ACopyThatIsWaitedForPassesThoseMadeAhead) {
  const auto wait_value = reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(
      spillway_emulator_proc_address("cuStreamWaitValue32", 11070));
  const auto write_value = reinterpret_cast<PFN_cuStreamWriteValue32_v11070>(
      spillway_emulator_proc_address("cuStreamWriteValue32", 11070));
  const driver::DevicePtr gate = allocate(4_KiB, side_);
  slots_.reserve(2);
  HostSlot& early = slot(4_KiB, 1);
  HostSlot& urgent = slot(4_KiB, 2);
  const driver::DevicePtr first = allocate(4_KiB, main_);
  const driver::DevicePtr second = allocate(4_KiB, side_);
  ASSERT_EQ(write_value(side_.handle(), gate.address(), 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);
  ASSERT_EQ(wait_value(main_.handle(), gate.address(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);

  const driver::Fence ahead = copies_->to_device({early.bytes(), {}, first}, main_).value();
  const driver::Fence waited_for =
      copies_->to_device({urgent.bytes(), {}, second}, side_, CopyPriority::kDemand).value();

  EXPECT_TRUE(driver::Timeline::passed(waited_for));
  EXPECT_FALSE(driver::Timeline::passed(ahead));
  ASSERT_EQ(write_value(side_.handle(), gate.address(), 1, 0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spillway
