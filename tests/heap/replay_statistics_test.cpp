// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/span_log.h"
#include "emulator/emulator.h"
#include "tests/heap/replay_fixture.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {
namespace {

TEST_F(ReplayTest, ReplayedBlocksAreAllocatedBlocksInEveryList) {
  learn();
  const auto a = allocate(3_MiB, main_, TagId{5});

  EXPECT_EQ(heap_->find(a + 1_MiB).at, a);
  EXPECT_TRUE(heap_->retag(a, TagId{6}));
  ASSERT_EQ(heap_->view().blocks_of(TagId{6}).size(), 1U);
  EXPECT_EQ(heap_->view().blocks_of(TagId{6})[0].at, a);
  ASSERT_EQ(heap_->view().segments().size(), 1U);
  EXPECT_EQ(heap_->view().segments()[0].size, 6_MiB);
  EXPECT_EQ(heap_->stats().allocated, 3_MiB);
  EXPECT_EQ(heap_->stats().cached, 3_MiB);
  EXPECT_EQ(heap_->stats().stranded, 1_MiB);
  EXPECT_EQ(heap_->stats().allocated_blocks, 1U);
  free(a);
  EXPECT_FALSE(heap_->free(a));
  EXPECT_EQ(heap_->stats().bad_frees, 1U);
}

TEST_F(ReplayTest, StatisticsReadInAReplayedStepAreCurrent) {
  learn();
  const HeapStats before = heap_->stats();
  const auto a = allocate(3_MiB, main_, TagId{0});
  free(a);
  const auto b = allocate(64_KiB);

  EXPECT_EQ(heap_->stats().allocated, 64_KiB);
  EXPECT_EQ(heap_->stats().requested, 64_KiB);
  EXPECT_EQ(heap_->stats().allocated_blocks, 1U);
  EXPECT_EQ(heap_->stats().allocations, before.allocations + 2);
  EXPECT_EQ(heap_->stats().frees, before.frees + 1);
  ASSERT_EQ(heap_->view().tags().size(), 1U);
  EXPECT_EQ(heap_->view().tags()[0].requested, 64_KiB);
  EXPECT_EQ(heap_->find(b + 1_KiB).at, b);
  const auto c = allocate(5_MiB);
  free(b);
  free(c);
  heap_->placement().end_step();
  EXPECT_EQ(replayed(), 3U);
  EXPECT_EQ(mismatches(), 0U);
  EXPECT_EQ(step(), (Addresses{a, b, c}));
}

TEST_F(ReplayTest, PeaksIncludeTheBytesOfOtherStreams) {
  const auto step_beside = [&] {
    const auto a = allocate(3_MiB);
    const auto side = allocate(2_MiB, side_);
    free(a);
    free(side);
    const auto b = allocate(4_MiB);
    free(b);
    heap_->placement().end_step();
  };
  peaks_of_third(step_beside);

  EXPECT_EQ(replayed(), 2U);
  EXPECT_EQ(heap_->stats().allocated_peak, 5_MiB);
  EXPECT_EQ(heap_->stats().allocated_blocks_peak, 2U);
}

TEST_F(ReplayTest, PeaksExcludeBytesFreedBeforeOtherStreamsAllocate) {
  const auto step_before = [&] {
    free(allocate(3_MiB));
    free(allocate(2_MiB, side_));
    heap_->placement().end_step();
  };
  peaks_of_third(step_before);

  EXPECT_EQ(replayed(), 1U);
  EXPECT_EQ(heap_->stats().allocated_peak, 3_MiB);
}

TEST_F(ReplayTest, ThePeakOfAReplayedStepIncludesPersistentMemory) {
  const auto stays = allocate(1_MiB, main_, TagId{5});
  heap_->placement().end_step();
  const auto step_of_tag = [&] {
    free(allocate(3_MiB, main_, TagId{5}));
    free(allocate(2_MiB, main_, TagId{6}));
    heap_->placement().end_step();
  };
  peaks_of_third(step_of_tag);

  EXPECT_EQ(replayed(), 2U);
  EXPECT_EQ(heap_->stats().allocated_peak, 4_MiB);
  EXPECT_EQ(heap_->stats().requested_peak, 4_MiB);
  ASSERT_EQ(heap_->view().tags().size(), 2U);
  EXPECT_EQ(heap_->view().tags()[0].allocated_peak, 4_MiB);
  EXPECT_EQ(heap_->view().tags()[1].allocated_peak, 2_MiB);
  free(stays);
}

/// Otherwise the time in which the host maps memory would count as the stream's own.
TEST_F(ReplayTest, MappingIsTimedOnTheStreamThatNeedsTheMemory) {
  using driver::Span;
  using driver::SpanLog;
  SpanLog& spans = SpanLog::instance();
  const auto mapping = [&](auto request) {
    SpanLog::start(SpanLog::Reader::kPlan);
    request();
    spans.wait(std::chrono::seconds(1));
    std::vector<Span> taken = spans.take(SpanLog::Reader::kPlan);
    spans.stop(SpanLog::Reader::kPlan);
    std::erase_if(taken, [](const Span& span) { return span.kind != Span::Kind::kMapping; });
    return taken;
  };
  driver::DevicePtr at{};

  const auto mapped = mapping([&] { at = allocate(5_MiB); });
  ASSERT_EQ(mapped.size(), 1u);
  EXPECT_EQ(mapped[0].stream, reinterpret_cast<std::uint64_t>(main_.handle()));
  EXPECT_GE(mapped[0].end, mapped[0].begin);
  free(at);
  EXPECT_TRUE(mapping([&] { free(allocate(5_MiB)); }).empty());
}

}  // namespace
}  // namespace spillway
