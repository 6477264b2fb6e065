// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/trace.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace spillway {
namespace {

using Kind = TraceEvent::Kind;
using namespace literals;

TraceEvent allocate(std::uint64_t time, std::uint64_t block, Bytes bytes) {
  TraceEvent event;
  event.kind = Kind::kAllocate;
  event.time = time;
  event.block = block;
  event.bytes = bytes;
  return event;
}

TraceEvent of_block(Kind kind, std::uint64_t time, std::uint64_t block) {
  TraceEvent event;
  event.kind = kind;
  event.time = time;
  event.block = block;
  return event;
}

/// A trace whose events are drawn; every kind of event is in it.
Trace drawn(unsigned seed) {
  std::mt19937_64 random(seed);
  Trace trace;
  trace.device = DeviceId{1};
  trace.granularity = 2_MiB;
  std::vector<std::uint64_t> live;
  std::uint64_t blocks = 0;
  std::uint64_t time = 0;
  for (int i = 0; i < 200; ++i) {
    time += random() % 3 == 0 ? random() >> 20U : random() % 200;
    const auto choice = live.empty() ? 0 : random() % 5;
    TraceEvent event;
    event.time = time;
    if (choice == 0) {
      event = allocate(time, blocks, Bytes{random() >> (20 + random() % 40)});
      event.tag = static_cast<std::uint32_t>(random() % trace.tags.size());
      event.stream = static_cast<std::uint32_t>(blocks < 3 ? blocks : random() % 3);
      event.pool = static_cast<std::uint32_t>(blocks < 2 ? blocks : random() % 2);
      live.push_back(blocks++);
    } else if (choice < 4) {
      const auto which = random() % live.size();
      event = of_block(choice == 1 ? Kind::kFree : Kind::kUse, time, live[which]);
      if (choice == 1) live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      if (choice == 3) {
        event.kind = Kind::kRetag;
        trace.tags.push_back("tag/" + std::to_string(i));
        event.tag = static_cast<std::uint32_t>(trace.tags.size() - 1);
      }
    }
    trace.events.push_back(event);
  }
  return trace;
}

std::string encoded(const Trace& trace) {
  TraceEncoder encoder(trace.device, trace.granularity);
  std::size_t named = 1;
  for (const TraceEvent& event : trace.events) {
    for (; named <= event.tag; ++named)
      encoder.name(trace.tags[named]);
    encoder.add(event);
  }
  encoder.end(trace.dropped);
  return encoder.bytes();
}

TEST(TraceTest, TheReaderReturnsTheWrittenEvents) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (unsigned round = 0; round < 50; ++round) {
    Trace trace = drawn(seed + round);
    trace.dropped = round;
    const auto read = read_trace(encoded(trace));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().device, trace.device);
    EXPECT_EQ(read.value().granularity, trace.granularity);
    EXPECT_EQ(read.value().tags, trace.tags);
    EXPECT_EQ(read.value().events, trace.events);
    EXPECT_EQ(read.value().dropped, round);
    EXPECT_TRUE(read.value().complete);
  }
}

TEST(TraceTest, AnyCutGivesThePartBeforeItOrAnError) {
  const Trace trace = drawn(7);
  const std::string bytes = encoded(trace);
  std::size_t last = 0;
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto read = read_trace(std::string_view(bytes).substr(0, cut));
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
      EXPECT_LT(cut, 16U) << "the header alone may not be cut";
      continue;
    }
    const auto& events = read.value().events;
    EXPECT_FALSE(read.value().complete);
    ASSERT_LE(events.size(), trace.events.size());
    EXPECT_TRUE(std::equal(events.begin(), events.end(), trace.events.begin()));
    EXPECT_GE(events.size(), last);
    last = events.size();
  }
  EXPECT_EQ(last, trace.events.size());
}

TEST(TraceTest, AnyChangedByteGivesATraceOrAnError) {
  const std::string bytes = encoded(drawn(8));
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bad = bytes;
    bad[random() % bad.size()] = static_cast<char>(random());
    const auto read = read_trace(bad);
    if (read.ok()) continue;
    ++refused;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
  }
  EXPECT_GT(refused, 0);
}

std::string refusal(const std::string& bytes) {
  const auto read = read_trace(bytes);
  return read.ok() ? "" : read.status().detail();
}

std::string beginning() {
  return TraceEncoder(DeviceId{0}, 2_MiB).bytes();
}

TEST(TraceTest, OtherFilesAreRefused) {
  EXPECT_EQ(refusal("PK\x03\x04").rfind("is not a trace of Spillway. ", 0), 0U);
  EXPECT_EQ(refusal("").rfind("is not a trace of Spillway. ", 0), 0U);
}

TEST(TraceTest, OtherVersionsAreRefused) {
  std::string bytes = beginning();
  bytes[8] = 2;
  EXPECT_EQ(refusal(bytes).rfind("has format 2, but this Spillway reads format 1. ", 0), 0U);
}

TEST(TraceTest, NumbersOfMoreThan64BitsAreRefused) {
  EXPECT_NE(refusal(beginning() + std::string(9, '\xff') + "\x02").find("more than 64 bits"),
            std::string::npos);
}

TEST(TraceTest, UnknownRecordsAreRefused) {
  EXPECT_NE(refusal(beginning() + "\x09").find("unknown record 9"), std::string::npos);
}

TEST(TraceTest, EventsOfBlocksThatAreNotAllocatedAreRejected) {
  TraceEncoder encoder(DeviceId{0}, 2_MiB);
  encoder.add(allocate(0, 0, 1_KiB));
  encoder.add(of_block(Kind::kFree, 1, 0));
  encoder.add(of_block(Kind::kFree, 2, 0));
  EXPECT_NE(refusal(encoder.bytes()).find("not allocated"), std::string::npos);
}

TEST(TraceTest, TagsStreamsAndPoolsMustBeIntroduced) {
  for (auto member : {&TraceEvent::tag, &TraceEvent::stream, &TraceEvent::pool}) {
    TraceEncoder encoder(DeviceId{0}, 2_MiB);
    TraceEvent event = allocate(0, 0, 1_KiB);
    event.*member = 1;
    encoder.add(event);
    EXPECT_NE(refusal(encoder.bytes()).find("was not introduced"), std::string::npos);
  }
}

TEST(TraceTest, SumsThatOverflowAreRefused) {
  TraceEncoder sizes(DeviceId{0}, 2_MiB);
  sizes.add(allocate(0, 0, Bytes{~std::uint64_t{0}}));
  sizes.add(allocate(0, 1, 1_B));
  EXPECT_NE(refusal(sizes.bytes()).find("allocated bytes"), std::string::npos);
  TraceEncoder times(DeviceId{0}, 2_MiB);
  times.add(allocate(~std::uint64_t{0}, 0, 1_B));
  const std::string one_more("\x06\x01", 2);
  EXPECT_NE(refusal(times.bytes() + one_more).find("nanoseconds"), std::string::npos);
}

TEST(TraceTest, NothingMayFollowTheEnd) {
  const std::string bytes = encoded(drawn(9));
  EXPECT_NE(refusal(bytes + "x").find("data after the end"), std::string::npos);
}

TEST(TraceTest, AFileThatIsNotThereIsNamed) {
  const auto read = load_trace("/nowhere/at all");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().detail().find("/nowhere/at all: No such file"), std::string::npos);
}

}  // namespace
}  // namespace spillway
