// SPDX-License-Identifier: Apache-2.0
// The virtual clock, with 10 GiB/s to the device, 5 GiB/s back and 10 us of latency.
#include "allocator/runtime/run_log.h"

#include "allocator/base/utf8.h"
#include "allocator/driver/span_log.h"
#include "allocator/driver/span_names.h"
#include "allocator/runtime/runtime.h"
#include "allocator/runtime/stats_page.h"
#include "allocator/tag/tag.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kSize{16U << 20U};
constexpr double kOut = 10e3 + 16.0 / 5120 * 1e9;  // nanoseconds
constexpr double kIn = 10e3 + 16.0 / 10240 * 1e9;

class RunLogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "run_log_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }

  void TearDown() override {
    RunLog::instance().stop();
    unlink(log_path().c_str());
    unlink(page_path().c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }

  std::string log_path() const { return folder_ + "/log"; }

  std::string page_path() const { return folder_ + "/page"; }

  void start() {
    const Status status = RunLog::instance().start({log_path(), R"({"about":1})", page_path()});
    ASSERT_TRUE(status.ok()) << status.message();
  }

  /// Lines of one kind, as they are in the file, once the log has ended.
  std::vector<std::string> lines(const std::string& kind) const {
    std::vector<std::string> found;
    std::ifstream file(log_path());
    for (std::string line; std::getline(file, line);)
      if (line.rfind("[\"" + kind + "\",", 0) == 0) found.push_back(line);
    return found;
  }

  /// The numbers of a line that has no others.
  static std::vector<double> numbers(const std::string& line) {
    std::vector<double> found;
    std::istringstream rest(line.substr(line.find(',') + 1));
    for (std::string each; std::getline(rest, each, ',');)
      found.push_back(std::stod(each));
    return found;
  }

  StatsPageLayout page() const {
    StatsPageLayout read{};
    std::ifstream file(page_path(), std::ios::binary);
    file.read(reinterpret_cast<char*>(&read), sizeof read);
    EXPECT_EQ(file.gcount(), static_cast<std::streamsize>(sizeof read));
    return read;
  }

  static DeviceRuntime& device() { return *Runtime::instance().device(DeviceId{0}).value(); }

  const driver::Stream stream_{CUstream{nullptr}};
  std::string folder_;
};

TEST_F(RunLogTest, AnOperatorIsNamedOnceAndHasItsTimes) {
  start();
  driver::SpanLog& spans = driver::SpanLog::instance();
  const auto& on = device().device();
  {
    const driver::CurrentDevice current(*on.api, on.context);
    for (int again = 0; again < 2; ++again) {
      auto begun = spans.begin(on, stream_, driver::Span::Kind::kOperator);
      begun.span.name = driver::number_span_name("aten::mul");
      spans.end(on, stream_, begun);
    }
    on.api->CtxSynchronize();
  }
  RunLog::instance().stop();
  ASSERT_EQ(lines("name").size(), 1U);
  EXPECT_NE(lines("name")[0].find("aten::mul"), std::string::npos);
  ASSERT_EQ(lines("op").size(), 2U);
  const auto name = static_cast<double>(driver::number_span_name("aten::mul"));
  EXPECT_EQ(numbers(lines("op")[0]).at(5), name);
}

TEST_F(RunLogTest, AfterThisMuchDetailStepsAloneAreWritten) {
  start();
  const std::string long_name(30U << 10U, 'x');  // less than what is written between two steps
  constexpr int kSteps = 2300;                   // more than 64 MiB
  for (int step = 0; step < kSteps; ++step) {
    RunLog::instance().came_from(1, "aten::mul", long_name);
    MemoryEvents::step_ended();
  }
  RunLog::instance().stop();
  EXPECT_EQ(lines("full").size(), 1U);
  EXPECT_EQ(lines("step").size(), kSteps);
  EXPECT_LT(lines("from").size(), kSteps);
}

TEST_F(RunLogTest, OffNothingIsWritten) {
  const auto block = device().allocate(kSize, stream_).value();
  device().free(block);

  EXPECT_FALSE(RunLog::on());
  EXPECT_NE(access(log_path().c_str(), F_OK), 0);
}

TEST_F(RunLogTest, BlocksAreWrittenAsTheyComeAndGo) {
  start();
  {
    const TagScope tag(intern_tag("a/\"quoted\""));
    const auto block = device().allocate(1000_B, stream_).value();
    device().free(block);
  }
  RunLog::instance().stop();

  ASSERT_EQ(lines("new").size(), 1U);
  const auto born = numbers(lines("new").front());
  EXPECT_EQ(born.at(2), 1024);  // as rounded
  EXPECT_EQ(numbers(lines("free").front()).at(1), born.at(1));
  ASSERT_EQ(lines("tag").size(), 1U);
  EXPECT_NE(lines("tag").front().find(R"("a/\"quoted\"")"), std::string::npos);
  EXPECT_EQ(lines("done").size(), 1U);
}

TEST_F(RunLogTest, WhatLivesAlreadyComesFirst) {
  const auto block = device().allocate(kSize, stream_).value();
  start();
  device().free(block);
  RunLog::instance().stop();

  EXPECT_EQ(numbers(lines("new").at(0)).at(2), kSize.count());
  EXPECT_EQ(lines("free").size(), 1U);
}

TEST_F(RunLogTest, CopiesAndWaitsAreTimedByTheDevice) {
  start();
  DeviceRuntime& on = device();
  const auto block = on.allocate(kSize, stream_).value();
  const auto syncs = driver::counters().host_syncs;
  const TagId tag = intern_tag("timed");
  Stash stash;
  {
    const driver::SpanLog::Subject subject(tag, 77);
    stash = on.residency().stash(block, kSize, stream_).value();
    const auto read = on.residency().fetch(stash, block, stream_).value();
    ASSERT_TRUE(driver::Timeline::wait(stream_, read).ok());
  }
  EXPECT_EQ(driver::counters().host_syncs, syncs);
  on.device().api->StreamSynchronize(stream_.handle());
  on.copies().drain_sync();
  stash = {};
  on.free(block);
  RunLog::instance().stop();

  const auto took = [&](const std::string& kind) {
    const auto span = numbers(lines(kind).back());
    EXPECT_EQ(span.at(7), 77) << kind;
    return span.at(2) - span.at(1);
  };
  EXPECT_NEAR(took("out"), kOut, 0.02 * kOut);
  EXPECT_NEAR(took("in"), kIn, 0.02 * kIn);
  // The stream had nothing to do but to wait for both copies.
  EXPECT_NEAR(took("wait"), kOut + kIn, 0.02 * (kOut + kIn));
}

TEST_F(RunLogTest, ThePageShowsStallsOfTheComputingStreamByTag) {
  start();
  DeviceRuntime& on = device();
  const TagId tag = intern_tag("stalled");
  const auto block = on.allocate(kSize, stream_).value();
  ASSERT_TRUE(Runtime::instance().step().enter_region(tag, Ratio::of(1.0).value()).ok());
  Runtime::instance().step().leave_region(tag);
  Stash stash;
  {
    const driver::SpanLog::Subject subject(tag, 1);
    stash = on.residency().stash(block, kSize, stream_).value();
    const auto read = on.residency().fetch(stash, block, stream_).value();
    ASSERT_TRUE(driver::Timeline::wait(stream_, read).ok());
  }
  on.device().api->StreamSynchronize(stream_.handle());
  on.copies().drain_sync();
  Runtime::instance().step().end(StepEnd::kRequested);

  const StatsPageLayout shown = page();
  EXPECT_EQ(std::memcmp(shown.magic.data(), "SPILLTOP", 8), 0);
  EXPECT_EQ(shown.sequence % 2, 0U);
  EXPECT_EQ(shown.process, static_cast<std::uint64_t>(getpid()));
  EXPECT_EQ(shown.steps, 1U);
  EXPECT_EQ(shown.emulated, 1U);
  EXPECT_EQ(shown.device.at(0).capacity, driver::memory_info(on.device()).value().total.count());
  EXPECT_EQ(shown.device.at(0).copied_out, on.residency().stats().stashed.count());
  const auto end = shown.tag.begin() + shown.tags;
  const auto found = std::find_if(shown.tag.begin(), end, [](const StatsPageLayout::Tag& each) {
    return std::string(each.name.data()) == "stalled";
  });
  ASSERT_NE(found, end);
  EXPECT_EQ(found->stalls, 1U);
  EXPECT_NEAR(static_cast<double>(found->stalled), kOut + kIn, 0.02 * (kOut + kIn));
  on.copies().drain_sync();
  stash = {};
  on.free(block);
}

TEST_F(RunLogTest, FilesAreTheUsersAloneAndThePageGoesWithTheLog) {
  start();
  for (const std::string& path : {log_path(), page_path()}) {
    struct stat found {};

    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U) << path;
  }
  RunLog::instance().stop();

  EXPECT_NE(access(page_path().c_str(), F_OK), 0);
}

TEST_F(RunLogTest, ATruncatedPageDoesNotEndTheProcess) {
  start();
  ASSERT_EQ(truncate(page_path().c_str(), 0), 0);

  MemoryEvents::step_ended();

  EXPECT_EQ(page().steps, 1U);
  EXPECT_EQ(page().sequence % 2, 0U);
}

TEST_F(RunLogTest, NamesInBothFilesAreValidUtf8) {
  start();
  const TagId bad = intern_tag("caf\xE9");
  const TagId cut = intern_tag(std::string(62, 'x') + "\xE2\x82\xAC");  // longer than a page's name
  for (const TagId tag : {bad, cut}) {
    ASSERT_TRUE(Runtime::instance().step().enter_region(tag, Ratio::of(1.0).value()).ok());
    Runtime::instance().step().leave_region(tag);
  }
  MemoryEvents::born(
      {.device = DeviceId{0}, .address = 4096, .requested = kSize, .rounded = kSize, .tag = bad});
  MemoryEvents::step_ended();

  const StatsPageLayout shown = page();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < shown.tags; ++i)
    names.emplace_back(shown.tag.at(i).name.data());
  EXPECT_NE(std::find(names.begin(), names.end(), R"(caf\xe9)"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), std::string(62, 'x')), names.end());
  for (const std::string& name : names)
    EXPECT_EQ(valid_utf8(name), name);
  RunLog::instance().stop();
  const auto tagged = lines("tag");
  ASSERT_EQ(tagged.size(), 1U);
  EXPECT_NE(tagged.front().find(R"("caf\\xe9")"), std::string::npos) << tagged.front();
}

TEST_F(RunLogTest, AFileThatIsThereIsNotTouchedAndNothingIsLeftBehind) {
  std::ofstream(log_path()) << "mine";

  const Status status = RunLog::instance().start({log_path(), "{}", page_path()});

  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_FALSE(RunLog::on());
  EXPECT_NE(access(page_path().c_str(), F_OK), 0);
  std::string kept;
  std::ifstream(log_path()) >> kept;
  EXPECT_EQ(kept, "mine");
}

TEST_F(RunLogTest, TwoAtOnceAreRefused) {
  start();
  EXPECT_EQ(RunLog::instance().start({log_path() + "2", "{}", ""}).code(), Code::kNotReady);
}

TEST_F(RunLogTest, AForkedChildWritesNothingAndLeavesThePage) {
  start();
  MemoryEvents::step_ended();
  const pid_t child = fork();
  if (child == 0) {
    MemoryEvents::born({.device = DeviceId{0},
                        .address = 4096,
                        .requested = kSize,
                        .rounded = kSize,
                        .tag = TagId::kUntagged});
    MemoryEvents::step_ended();
    RunLog::instance().stop();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(page().steps, 1U);
  RunLog::instance().stop();

  EXPECT_TRUE(lines("new").empty());
  EXPECT_EQ(lines("step").size(), 1U);
  EXPECT_EQ(lines("done").size(), 1U);
}

}  // namespace
}  // namespace spillway
