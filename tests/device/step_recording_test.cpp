// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_recording.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace spillway {
namespace {

using driver::Span;

constexpr std::uint64_t kMs = 1'000'000;
constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();

Span mark(Span::Kind kind, std::uint64_t ms, std::uint64_t event, std::uint64_t storage = kNone) {
  Span span;
  span.kind = kind;
  span.stream = 7;
  span.begin = span.end = ms * kMs;
  span.other = event;
  span.storage = storage;
  return span;
}

Span stretch(Span::Kind kind,
             std::uint64_t from,
             std::uint64_t to,
             std::uint64_t storage = 0,
             std::uint64_t stream = 7) {
  Span span = mark(kind, from, 0, storage);
  span.end = to * kMs;
  span.stream = stream;
  return span;
}

Span copy(Span::Kind kind, std::uint64_t from, std::uint64_t to, Bytes bytes) {
  Span span = stretch(kind, from, to, 0, 8);
  span.bytes = bytes;
  return span;
}

std::vector<double> seconds_of(const StepTimes& times) {
  std::vector<double> seconds;
  for (const StepTimes::Mark& each : times.marks)
    seconds.push_back(each.seconds);
  return seconds;
}

std::vector<std::size_t> events_of(const StepTimes& times) {
  std::vector<std::size_t> events;
  for (const StepTimes::Mark& each : times.marks)
    events.push_back(each.event);
  return events;
}

TEST(StepTimesTest, PausesAndWhatIsRecomputedAreNoComputing) {
  const auto times = step_times_of({mark(Span::Kind::kSaved, 10, 0),
                                    mark(Span::Kind::kSaved, 14, 3, 0),
                                    stretch(Span::Kind::kWait, 15, 20),
                                    mark(Span::Kind::kSaved, 22, 5, 1),
                                    stretch(Span::Kind::kRecompute, 23, 26, 1),
                                    mark(Span::Kind::kWanted, 26, 9, 1),
                                    stretch(Span::Kind::kMapping, 27, 29),
                                    mark(Span::Kind::kEnded, 30, 12)});

  ASSERT_TRUE(times);
  EXPECT_EQ(seconds_of(*times), (std::vector{0.0, 4e-3, 7e-3, 8e-3}));
  EXPECT_DOUBLE_EQ(times->end, 10e-3);
  EXPECT_EQ(events_of(*times), (std::vector<std::size_t>{0, 3, 5, 9}));
  ASSERT_EQ(times->recompute.size(), 2u);
  EXPECT_DOUBLE_EQ(times->recompute[1], 3e-3);
}

TEST(StepTimesTest, WhatIsWaitedForInsideIsNotTheRecomputes) {
  const auto times = step_times_of({mark(Span::Kind::kSaved, 0, 0),
                                    stretch(Span::Kind::kRecompute, 1, 10, 0),
                                    stretch(Span::Kind::kWait, 2, 5),
                                    stretch(Span::Kind::kRecompute, 6, 8, 1),
                                    stretch(Span::Kind::kMapping, 8, 9),
                                    mark(Span::Kind::kWanted, 10, 1, 0),
                                    mark(Span::Kind::kEnded, 11, 2)});

  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->recompute[0], 3e-3);
  EXPECT_DOUBLE_EQ(times->recompute[1], 2e-3);
  EXPECT_DOUBLE_EQ(times->end, 2e-3);
}

TEST(StepTimesTest, TheLinkIsWhatCopiesOfSeveralSizesSay) {
  // Each copy takes 1 ms besides; 1000 bytes a millisecond out, and no copy in.
  const auto times = step_times_of({mark(Span::Kind::kSaved, 0, 0),
                                    copy(Span::Kind::kOut, 0, 2, Bytes{1000}),
                                    copy(Span::Kind::kOut, 2, 13, Bytes{10'000}),
                                    mark(Span::Kind::kEnded, 20, 2)});

  ASSERT_TRUE(times);
  EXPECT_NEAR(times->link.per_copy, 1e-3, 1e-9);
  EXPECT_NEAR(times->link.out, 1e6, 1);
  EXPECT_EQ(times->link.in, times->link.out);
}

/// A step of one storage from `ms` on, which takes that many milliseconds.
std::vector<Span> step_of(std::uint64_t number, std::uint64_t ms, std::uint64_t takes) {
  return {mark(Span::Kind::kSaved, ms, 0),
          mark(Span::Kind::kSaved, ms, 1, 0),
          copy(Span::Kind::kOut, ms, ms + takes, Bytes{1000 * takes}),
          mark(Span::Kind::kEnded, ms + takes, 2, number)};
}

TEST(StepTimesTest, StepsAreTakenOneByOneAsTheyEnd) {
  std::vector<Span> spans = step_of(1, 0, 4);
  const auto second = step_of(2, 10, 6);
  spans.insert(spans.end(), second.begin(), second.end() - 1);

  const auto first = step_times_of(take_step(spans));
  ASSERT_TRUE(first);
  EXPECT_DOUBLE_EQ(first->end, 4e-3);
  EXPECT_DOUBLE_EQ(first->link.out, 1e6);
  EXPECT_TRUE(take_step(spans).empty()) << "the second one has not ended";

  spans.push_back(second.back());
  const auto times = step_times_of(take_step(spans));
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->end, 6e-3);
  EXPECT_EQ(events_of(*times), (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(spans.empty());
}

TEST(StepTimesTest, AStepThatBeginsAsAnotherOneEndsIsTheLaterOne) {
  std::vector<Span> spans = step_of(1, 0, 4);
  for (Span span : step_of(2, 4, 6)) {
    span.submitted = 1;
    spans.push_back(span);
  }

  const auto first = step_times_of(take_step(spans));
  const auto second = step_times_of(take_step(spans));

  ASSERT_TRUE(first && second);
  EXPECT_DOUBLE_EQ(first->end, 4e-3);
  EXPECT_DOUBLE_EQ(second->end, 6e-3);
}

TEST(StepTimesTest, WhatPrecedesAStepIsNotPartOfIt) {
  std::vector<Span> spans = step_of(1, 0, 4);
  spans.pop_back();  // its measurement was given up
  const auto next = step_of(2, 10, 6);
  spans.insert(spans.end(), next.begin(), next.end());

  const auto times = step_times_of(take_step(spans));

  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->end, 6e-3);
  EXPECT_EQ(events_of(*times), (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(spans.empty());
}

TEST(StepTimesTest, AStepWithoutABeginningOrAnEndHasNone) {
  EXPECT_FALSE(step_times_of({mark(Span::Kind::kEnded, 1, 0)}));
  EXPECT_FALSE(step_times_of({mark(Span::Kind::kSaved, 1, 0)}));
  EXPECT_FALSE(step_times_of({}));
}

}  // namespace
}  // namespace spillway
