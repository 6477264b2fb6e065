// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/recorder.h"

#include "allocator/lifetime/trace.h"
#include "allocator/tag/tag.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

std::atomic<std::uint64_t> ticks = 0;

/// Ten nanoseconds later at each look.
std::uint64_t tick() {
  return ticks += 10;
}

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() { options_.now = tick; }

  ~RecorderTest() override {
    if (LifetimeRecorder::on()) static_cast<void>(recorder_.stop());
  }

  void begin() { ASSERT_TRUE(recorder_.start(options_).ok()); }

  void born(std::uint64_t address, Bytes bytes = 1_KiB, TagId tag = TagId::kUntagged) {
    MemoryEvents::born({DeviceId{0}, address, bytes, bytes, tag, 7, 0});
  }

  void died(std::uint64_t address) { MemoryEvents::died(DeviceId{0}, address); }

  LifetimeRecorder& recorder_ = LifetimeRecorder::instance();
  RecordingOptions options_;
};

TEST_F(RecorderTest, ALifeHasBirthLastUseAndDeath) {
  begin();
  born(0x1000, 3_KiB, intern_tag("mlp"));
  MemoryEvents::used(DeviceId{0}, 0x1000);
  MemoryEvents::step_ended();
  MemoryEvents::used(DeviceId{0}, 0x1000);
  died(0x1000);
  ASSERT_TRUE(recorder_.stop().ok());

  const auto records = recorder_.records();
  ASSERT_EQ(records.size(), 1U);
  const LifetimeRecord& life = records.front();
  EXPECT_EQ(life.bytes, 3_KiB);
  EXPECT_EQ(tag_name(life.tag), "mlp");
  EXPECT_EQ(life.stream, 7U);
  EXPECT_EQ(life.birth.event, 1U);
  EXPECT_EQ(life.last_use.event, 4U);
  EXPECT_EQ(life.death.event, 5U);
  EXPECT_EQ(life.birth.step, 0U);
  EXPECT_EQ(life.death.step, 1U);
  EXPECT_EQ(life.death.time - life.birth.time, 40U);
}

TEST_F(RecorderTest, BirthsAreDeathsAndLives) {
  begin();
  for (std::uint64_t i = 0; i < 100; ++i)
    born(0x1000 * (i + 1));
  for (std::uint64_t i = 0; i < 60; ++i)
    died(0x1000 * (i + 1));
  const LifetimeCounts counts = recorder_.counts();
  EXPECT_EQ(counts.births, 100U);
  EXPECT_EQ(counts.deaths, 60U);
  EXPECT_EQ(counts.live, 40U);
  EXPECT_EQ(recorder_.records().size(), 100U);
}

TEST_F(RecorderTest, OlderRecordsMakeRoomAndAreCounted) {
  options_.most = 4;
  begin();
  for (std::uint64_t i = 0; i < 10; ++i) {
    born(0x1000);
    died(0x1000);
  }
  const auto records = recorder_.records();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records.front().block, 6U);
  EXPECT_EQ(recorder_.counts().dropped, 6U);
}

TEST_F(RecorderTest, OtherDevicesAndOlderBlocksAreNotSeen) {
  begin();
  MemoryEvents::born({DeviceId{1}, 0x1000, 1_KiB, 1_KiB, TagId::kUntagged, 0, 0});
  died(0x2000);
  MemoryEvents::used(DeviceId{0}, 0x2000);
  EXPECT_EQ(recorder_.counts().births, 0U);
  EXPECT_EQ(recorder_.counts().deaths, 0U);
  EXPECT_EQ(recorder_.counts().uses, 0U);
}

TEST_F(RecorderTest, AnAddressThatIsBornAgainHasDied) {
  begin();
  born(0x1000);
  born(0x1000);
  EXPECT_EQ(recorder_.counts().deaths, 1U);
  EXPECT_EQ(recorder_.counts().live, 1U);
}

TEST_F(RecorderTest, OneRecordingAtATime) {
  begin();
  EXPECT_EQ(recorder_.start(options_).code(), Code::kNotReady);
  EXPECT_TRUE(LifetimeRecorder::on());
  ASSERT_TRUE(recorder_.stop().ok());
  EXPECT_EQ(recorder_.stop().code(), Code::kNotReady);
}

TEST_F(RecorderTest, NothingIsSeenOnceItHasEnded) {
  begin();
  ASSERT_TRUE(recorder_.stop().ok());
  born(0x1000);
  MemoryEvents::step_ended();
  EXPECT_EQ(recorder_.counts().births, 0U);
}

TEST_F(RecorderTest, AFileThatCannotBeMadeBeginsNothing) {
  options_.path = "/nowhere/trace";
  EXPECT_EQ(recorder_.start(options_).code(), Code::kInvalidArgument);
  EXPECT_FALSE(LifetimeRecorder::on());
}

TEST_F(RecorderTest, AFullDiskIsReportedAtTheEndAndCounted) {
  options_.path = "/dev/full";
  begin();
  for (std::uint64_t i = 0; i < 20000; ++i) {
    born(0x1000);
    died(0x1000);
  }
  const Status stopped = recorder_.stop();
  EXPECT_EQ(stopped.code(), Code::kInvalidArgument);
  EXPECT_NE(stopped.detail().find("No space left"), std::string::npos);
  EXPECT_GT(recorder_.counts().unwritten, 0U);
  EXPECT_EQ(recorder_.counts().births, 20000U);
}

TEST_F(RecorderTest, TheFileHoldsWhatHappened) {
  std::string path = ::testing::TempDir() + "spillway_trace_XXXXXX";
  const int file = mkstemp(path.data());
  ASSERT_GE(file, 0);
  close(file);
  options_.path = path;
  options_.granularity = 2_MiB;
  begin();
  born(0x1000, 3_KiB, intern_tag("mlp"));
  born(0x2000, 5_KiB);
  MemoryEvents::retagged(DeviceId{0}, 0x2000, intern_tag("parameter"));
  MemoryEvents::retagged(DeviceId{0}, 0x2000, intern_tag("parameter"));
  MemoryEvents::used(DeviceId{0}, 0x1000);
  died(0x1000);
  MemoryEvents::step_ended();
  ASSERT_TRUE(recorder_.stop().ok());

  const auto trace = load_trace(path);
  std::remove(path.c_str());
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_TRUE(trace.value().complete);
  EXPECT_EQ(trace.value().granularity, 2_MiB);
  EXPECT_EQ(trace.value().tags, (std::vector<std::string>{"", "mlp", "parameter"}));
  using Kind = TraceEvent::Kind;
  std::vector<Kind> kinds;
  for (const TraceEvent& event : trace.value().events)
    kinds.push_back(event.kind);
  EXPECT_EQ(
      kinds,
      (std::vector<Kind>{
          Kind::kAllocate, Kind::kAllocate, Kind::kRetag, Kind::kUse, Kind::kFree, Kind::kStep}));
  EXPECT_EQ(trace.value().events[0].bytes, 3_KiB);
  EXPECT_EQ(trace.value().events[2].block, 1U);
  EXPECT_EQ(trace.value().events[4].block, 0U);
}

TEST_F(RecorderTest, ThreadsLoseNothing) {
  begin();
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([this, t] {
      for (std::uint64_t i = 0; i < 1000; ++i) {
        born(t << 32U);
        MemoryEvents::used(DeviceId{0}, t << 32U);
        died(t << 32U);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(recorder_.counts().births, 4000U);
  EXPECT_EQ(recorder_.counts().deaths, 4000U);
  EXPECT_EQ(recorder_.counts().uses, 4000U);
  EXPECT_EQ(recorder_.counts().live, 0U);
}

}  // namespace
}  // namespace spillway
