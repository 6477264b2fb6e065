// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/residency_fixture.h"

#include <map>
#include <string>

namespace spillway {
namespace {

constexpr int kRounds = 5;

/// A driver table that leaves out the waits of one stream for another's events, and whose event
/// queries never return "passed": without that, a query that comes late enough would order what a
/// missing wait does not.
class LeakyWaits {
 public:
  explicit LeakyWaits(driver::Api& table) {
    record_ = table.EventRecord;
    wait_ = table.StreamWaitEvent;
    recorded_on_.clear();
    waiter_ = on_ = kNothing;
    left_out_ = 0;
    table.EventRecord = [](CUevent event, CUstream stream) {
      recorded_on_[event] = stream;
      return record_(event, stream);
    };
    table.StreamWaitEvent = [](CUstream stream, CUevent event, unsigned flags) {
      if (stream != waiter_ || recorded_on_.at(event) != on_) return wait_(stream, event, flags);
      ++left_out_;
      return CUDA_SUCCESS;
    };
    table.EventQuery = [](CUevent) {
      return CUDA_ERROR_NOT_READY;
    };
  }

  static void leave_out(driver::Stream waiter, driver::Stream on) {
    waiter_ = waiter.handle();
    on_ = on.handle();
  }

  [[nodiscard]] static int left_out() { return left_out_; }

 private:
  inline static const CUstream kNothing = reinterpret_cast<CUstream>(~std::uintptr_t{0});
  inline static PFN_cuEventRecord_v2000 record_ = nullptr;
  inline static PFN_cuStreamWaitEvent_v3020 wait_ = nullptr;
  inline static std::map<CUevent, CUstream> recorded_on_;
  inline static CUstream waiter_ = kNothing;
  inline static CUstream on_ = kNothing;
  inline static int left_out_ = 0;
};

enum class Queue { kCompute, kOther, kOut, kIn };

constexpr const char* kFill = "\"memset\"";
constexpr const char* kOut = "\"memcpy device to host\"";
constexpr const char* kIn = "\"memcpy host to device\"";

class EdgesTest;

/// One wait: who waits for whom, the round of work that needs it, and what the checker reports
/// without it.
struct Edge {
  const char* name;
  Queue waiter;
  Queue on;
  bool (EdgesTest::*round)(int value);  // whether the data were right
  const char* kind;
  const char* later;    // the operation that should have waited
  const char* earlier;  // for this one
};

struct Outcome {
  int right = 0;   // rounds with the right data
  int silent = 0;  // rounds without any report
  int named = 0;   // rounds with a report that names the edge's two operations
};

/// Two streams of a program: storages are produced on compute and, so that no other wait orders
/// what one edge is for, mostly consumed on the other. Each round has data of its own, so that old
/// bytes are never right by accident.
class EdgesTest : public ResidencyFixture, public testing::WithParamInterface<Edge> {
 public:
  /// Law 1: the copy out waits for the producer. The consumer's stream alone drives the copies
  /// here.
  bool saved_right_after_it_was_made(int value) {
    const driver::DevicePtr source = allocate(kSize, main_);
    fill(source, value, main_);
    Stash saved = stash(source, main_);
    free(source);
    return fetched_on_other(saved) == value;
  }

  /// Law 2: what gets the freed source block waits for the copy out. The new owner's result is
  /// needed first.
  bool source_block_used_again(int value) {
    const driver::DevicePtr source = allocate(kSize, main_);
    fill(source, value, main_);
    Stash saved = stash(source, main_);
    free(source);
    const driver::DevicePtr again = allocate(kSize, main_);
    EXPECT_EQ(again, source);
    fill(again, value + 100, main_);
    const bool right = read(again, main_) == value + 100;
    free(again);
    return fetched_on_other(saved) == value && right;
  }

  /// Law 3, first half: the copy in waits for the destination's former use. A second consumer's
  /// read drives the copy in before the first consumer's stream has run, which is when the former
  /// use would overwrite it.
  bool destination_used_before(int value) {
    const driver::DevicePtr source = allocate(kSize, main_);
    fill(source, value, main_);
    Stash saved = stash(source, main_);
    const driver::DevicePtr before = allocate(kSize, side_);
    fill(before, value + 100, side_);
    free(before);
    const driver::DevicePtr destination = allocate(kSize, side_);
    EXPECT_EQ(destination, before);
    const driver::Fence read_in = fetch(saved, destination, side_);
    EXPECT_TRUE(driver::Timeline::wait(main_, read_in).ok());
    EXPECT_TRUE(driver::Timeline::wait(side_, read_in).ok());
    const bool right = read(destination, main_) == value && read(destination, side_) == value;
    saved = {};
    free(destination);
    free(source);
    return right;
  }

  /// Law 4: a slot's next writer waits for the last copy that reads it. The writer's result is
  /// needed first.
  bool slot_used_again(int value) {
    const driver::DevicePtr source = allocate(kSize, main_);
    fill(source, value, main_);
    Stash saved = stash(source, main_);
    std::byte* const place = saved.bytes().data;
    const driver::DevicePtr destination = allocate(kSize, side_);
    EXPECT_TRUE(driver::Timeline::wait(side_, fetch(saved, destination, side_)).ok());
    saved = {};

    const driver::DevicePtr next = allocate(kSize, main_);
    fill(next, value + 100, main_);
    Stash other = stash(next, main_);
    EXPECT_EQ(other.bytes().data, place);
    free(next);
    const driver::DevicePtr again = allocate(kSize, main_);
    EXPECT_EQ(again, next);
    read(again, main_);  // comes after the copy out of the second storage
    const bool right = read(destination, side_) == value;
    other = {};
    for (const driver::DevicePtr at : {again, destination, source})
      free(at);
    return right;
  }

 protected:
  void SetUp() override {
    ResidencyFixture::SetUp();
    waits_ = std::make_unique<LeakyWaits>(table_);
  }

  int fetched_on_other(Stash& saved) {
    const driver::DevicePtr destination = allocate(kSize, side_);
    EXPECT_TRUE(driver::Timeline::wait(side_, fetch(saved, destination, side_)).ok());
    const int value = read(destination, side_);
    saved = {};
    free(destination);
    return value;
  }

  driver::Stream stream(Queue queue) {
    switch (queue) {
      case Queue::kCompute:
        return main_;
      case Queue::kOther:
        return side_;
      case Queue::kOut:
        return copies_->out_stream();
      case Queue::kIn:
        break;
    }
    return copies_->in_stream();
  }

  Outcome run_rounds() {
    Outcome outcome;
    for (int round = 0; round < kRounds; ++round) {
      synchronize();
      spillway_emulator_clear_races();
      const std::uint64_t before = spillway_emulator_count("unordered");
      if ((this->*GetParam().round)(round + 1)) ++outcome.right;
      if (spillway_emulator_count("unordered") == before) ++outcome.silent;
      if (edge_is_named()) ++outcome.named;
    }
    return outcome;
  }

  static bool edge_is_named() {
    const Edge& edge = GetParam();
    for (std::size_t index = 0; const char* text = spillway_emulator_race(index); ++index) {
      const std::string report(text);
      const std::size_t kind = report.find(edge.kind);
      const std::size_t later = report.find(edge.later, kind);
      const std::size_t earlier =
          report.find(edge.earlier, later == std::string::npos ? later : later + 1);
      if (earlier != std::string::npos) return true;
    }
    return false;
  }

  Outcome run_rounds_without_the_wait() {
    waits_->leave_out(stream(GetParam().waiter), stream(GetParam().on));
    const Outcome outcome = run_rounds();
    EXPECT_GE(waits_->left_out(), kRounds) << "the wait was not even asked for";
    return outcome;
  }

  std::unique_ptr<LeakyWaits> waits_;
};

TEST_P(EdgesTest, WithAllWaitsTheCheckerIsSilent) {
  EXPECT_EQ(run_rounds().silent, kRounds);
}

TEST_P(EdgesTest, WithAllWaitsTheDataAreRight) {
  EXPECT_EQ(run_rounds().right, kRounds);
}

TEST_P(EdgesTest, WithoutTheWaitTheCheckerNamesBothOperationsEveryTime) {
  EXPECT_EQ(run_rounds_without_the_wait().named, kRounds);
}

TEST_P(EdgesTest, WithoutTheWaitTheLateScheduleGivesWrongDataEveryTime) {
  EXPECT_EQ(run_rounds_without_the_wait().right, 0);
}

INSTANTIATE_TEST_SUITE_P(Edges,
                         EdgesTest,
                         testing::Values(Edge{"CopyOutWaitsForTheProducer",
                                              Queue::kOut,
                                              Queue::kCompute,
                                              &EdgesTest::saved_right_after_it_was_made,
                                              "read after write",
                                              kOut,
                                              kFill},
                                         Edge{"NextOwnerOfTheSourceWaitsForTheCopyOut",
                                              Queue::kCompute,
                                              Queue::kOut,
                                              &EdgesTest::source_block_used_again,
                                              "write after read",
                                              kFill,
                                              kOut},
                                         Edge{"CopyInWaitsForTheDestinationsFormerUse",
                                              Queue::kIn,
                                              Queue::kOther,
                                              &EdgesTest::destination_used_before,
                                              "write after write",
                                              kIn,
                                              kFill},
                                         Edge{"ConsumerWaitsForTheCopyIn",
                                              Queue::kOther,
                                              Queue::kIn,
                                              &EdgesTest::saved_right_after_it_was_made,
                                              "read after write",
                                              kOut,
                                              kIn},
                                         Edge{"NextWriterOfTheSlotWaitsForTheCopyIn",
                                              Queue::kOut,
                                              Queue::kIn,
                                              &EdgesTest::slot_used_again,
                                              "write after read",
                                              kOut,
                                              kIn},
                                         Edge{"CopyInWaitsForTheCopyOut",
                                              Queue::kIn,
                                              Queue::kOut,
                                              &EdgesTest::saved_right_after_it_was_made,
                                              "read after write",
                                              kIn,
                                              kOut}),
                         [](const testing::TestParamInfo<Edge>& edge) { return edge.param.name; });

}  // namespace
}  // namespace spillway
