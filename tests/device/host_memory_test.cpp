// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/recent_peaks.h"
#include "tests/runtime/runtime_fixture.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <tuple>

namespace spillway {
namespace {

using HostMemoryTest = RuntimeTest;

std::vector<Bytes> a_shape(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Bytes> sizes(30);
  for (Bytes& size : sizes)
    size = Bytes{1024 + random() % 100000};
  return sizes;
}

std::vector<Bytes> times(std::vector<Bytes> sizes, std::uint64_t factor) {
  for (Bytes& size : sizes)
    size = Bytes{size.count() * factor};
  return sizes;
}

class EveryRatio : public HostMemoryTest, public testing::WithParamInterface<double> {};

TEST_P(EveryRatio, FromTheThirdStepOnNothingIsAllocatedRegisteredOrWaitedFor) {
  const std::vector<Bytes> sizes = a_shape(1);
  train(GetParam(), sizes);
  train(GetParam(), sizes);
  const driver::Counters before = driver::counters();

  for (int step = 0; step < 5; ++step)
    train(GetParam(), sizes);

  EXPECT_EQ(driver::counters().registrations, before.registrations);
  EXPECT_EQ(driver::counters().allocations, before.allocations);
  EXPECT_EQ(driver::counters().host_syncs, before.host_syncs);
}

TEST_P(EveryRatio, FromTheSecondStepOnPinnedMemoryIsAtMostThreePercentOverItsPeakOfUse) {
  const std::vector<Bytes> sizes = a_shape(2);
  train(GetParam(), sizes);
  for (int step = 0; step < 3; ++step) {
    train(GetParam(), sizes);

    const Bytes page = 4_KiB;
    EXPECT_LE(host().registered.count(), host().in_slots_peak.count() * 103 / 100 + page.count());
  }
}

INSTANTIATE_TEST_SUITE_P(Ratios, EveryRatio, testing::Values(0.0, 0.1, 1.0 / 3, 0.5, 0.9, 1.0));

TEST_F(HostMemoryTest, TheFirstStepAlreadyFitsTheArena) {
  train(1.0, {5_MiB, 5_MiB, 5_MiB});

  EXPECT_EQ(host().registered, 15_MiB);
}

TEST_F(HostMemoryTest, ALargerShapeFitsAtOnceAndExactlyOnceTheSmallerIsNoLongerRecent) {
  const std::vector<Bytes> sizes = a_shape(3);
  for (int step = 0; step < 3; ++step)
    train(1.0, sizes);

  train(1.0, times(sizes, 3));
  EXPECT_LE(host().registered.count(), host().in_slots_peak.count() * 110 / 100);

  for (std::size_t step = 0; step < RecentPeaks::kSteps; ++step)
    train(1.0, times(sizes, 3));
  EXPECT_LE(host().registered.count(), host().in_slots_peak.count() * 103 / 100);
}

TEST_F(HostMemoryTest, ASmallerShapeReleasesPinnedMemoryOnceTheLargerIsNoLongerRecent) {
  const std::vector<Bytes> sizes = a_shape(3);
  for (int step = 0; step < 3; ++step)
    train(1.0, times(sizes, 3));

  for (std::size_t step = 0; step < RecentPeaks::kSteps; ++step)
    train(1.0, sizes);

  EXPECT_LE(host().registered.count(), host().in_slots_peak.count() * 103 / 100);
}

TEST_F(HostMemoryTest, KnownShapesInTurnPinNothing) {
  const std::vector<Bytes> sizes = a_shape(4);
  const auto both = [&] {
    train(1.0, sizes);
    train(1.0, times(sizes, 2));
  };
  for (int round = 0; round < 3; ++round)
    both();
  const std::uint64_t before = driver::counters().registrations;

  for (int round = 0; round < 5; ++round)
    both();

  EXPECT_EQ(driver::counters().registrations, before);
}

TEST_F(HostMemoryTest, NewShapesPinMemoryOnlyToGrow) {
  const std::vector<Bytes> sizes = a_shape(5);
  train(1.0, times(sizes, 2));
  const std::uint64_t before = driver::counters().registrations;

  for (std::uint64_t each = 1; each < 20; ++each) {
    std::vector<Bytes> shape = sizes;
    for (Bytes& size : shape)
      size = size + Bytes{each};
    train(1.0, shape);
  }

  EXPECT_EQ(driver::counters().registrations, before);
}

/// A job whose shapes are one model at this many lengths, drawn at random from a quarter to the
/// whole of the longest; at every ratio.
class ManyShapes : public HostMemoryTest,
                   public testing::WithParamInterface<std::tuple<std::size_t, double>> {
 protected:
  void SetUp() override {
    std::vector<std::uint64_t> lengths(std::get<0>(GetParam()));
    for (std::uint64_t& length : lengths)
      length = 250 + random_() % 751;
    for (const std::uint64_t length : lengths) {
      std::vector<Bytes>& shape = shapes_.emplace_back(a_shape(6));
      for (Bytes& size : shape)
        size = Bytes{size.count() * length / 1000};
    }
  }

  /// A step of any of the shapes. Returns the bytes that were in slots after its forward pass.
  Bytes step() {
    std::vector<Saved> saved = forward(kTag, ratio_, shapes_[random_() % shapes_.size()]);
    Bytes in_slots;
    for (const Saved& each : saved) {
      if (each.stash.bytes().data != nullptr) in_slots += each.size.rounded_up(64_B);
    }
    backward(std::move(saved));
    return in_slots;
  }

  void steps(int count) {
    for (int each = 0; each < count; ++each)
      step();
  }

  std::mt19937_64 random_{std::get<0>(GetParam())};
  const double ratio_ = std::get<1>(GetParam());
  std::vector<std::vector<Bytes>> shapes_;
};

TEST_P(ManyShapes, NothingIsRegisteredUnlessThePeakGrows) {
  Bytes peak;
  for (int each = 0; each < 500; ++each) {
    const std::uint64_t before = driver::counters().registrations;
    const Bytes in_slots = step();
    if (each > 0 && in_slots <= peak) {
      ASSERT_EQ(driver::counters().registrations, before) << "step " << each;
    }
    peak = std::max(peak, in_slots);
  }
}

TEST_P(ManyShapes, PinnedMemoryIsAtMostATenthOverItsPeakOfUse) {
  Bytes peak;
  for (int each = 0; each < 500; ++each) {
    peak = std::max(peak, step());

    ASSERT_LE(host().registered.count(), (peak + 4_KiB).count() * 110 / 100) << "step " << each;
  }
}

TEST_P(ManyShapes, ALimitOfAFifthOverTheNeedRefusesNothing) {
  Bytes peak;
  for (const std::vector<Bytes>& shape : shapes_) {
    Bytes sum;
    for (const Bytes size : shape)
      sum += size.rounded_up(64_B);
    peak = std::max(peak, sum);
  }
  RuntimeOptions options;
  options.pinned_limit = Bytes{peak.count() * 12 / 10};
  make_runtime(options);
  for (int each = 0; each < 200; ++each) {
    step();

    ASSERT_EQ(skip(last(), SkipReason::kNoHostMemory).storages, 0U) << "step " << each;
  }
}

TEST_P(ManyShapes, NothingIsAllocatedOrWaitedForOnceThePeakIsKnown) {
  for (const std::vector<Bytes>& shape : shapes_)
    train(ratio_, shape);
  for (const std::vector<Bytes>& shape : shapes_)
    train(ratio_, shape);
  const driver::Counters before = driver::counters();

  steps(100);

  EXPECT_EQ(driver::counters().registrations, before.registrations);
  EXPECT_EQ(driver::counters().host_syncs, before.host_syncs);
}

TEST_P(ManyShapes, ASmallerShapeReleasesPinnedMemoryOnceTheOthersAreNoLongerRecent) {
  steps(100);
  const std::vector<Bytes> small{64_KiB, 100_KiB, 64_KiB};

  for (std::size_t each = 0; each <= RecentPeaks::kSteps; ++each)
    train(ratio_, small);

  EXPECT_LE(host().registered.count(), host().in_slots_peak.count() * 103 / 100);
}

TEST_P(ManyShapes, AGraphThatLivesAcrossStepsDoesNotMakeThemRegisterMemory) {
  auto kept = forward(kTag, 1.0, {1_MiB, 1_MiB});
  runtime_->step().end(StepEnd::kRequested);
  const TagId other = intern_tag("others");
  const auto train_other = [&](const std::vector<Bytes>& shape) {
    backward(forward(other, ratio_, shape));
    runtime_->step().end(StepEnd::kRequested);
  };
  for (int round = 0; round < 2; ++round) {
    for (const std::vector<Bytes>& shape : shapes_)
      train_other(shape);
  }
  const std::uint64_t before = driver::counters().registrations;

  for (int each = 0; each < 100; ++each)
    train_other(shapes_[random_() % shapes_.size()]);

  EXPECT_EQ(driver::counters().registrations, before);
  EXPECT_EQ(runtime_->stats().devices.at(0).residency.on_host, 2_MiB);
  backward(std::move(kept));
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         ManyShapes,
                         testing::Combine(testing::Values(30, 300), testing::Values(1.0 / 3, 1.0)));

TEST_F(HostMemoryTest, AStepWhoseSlotsDoNotFitWithoutGapsIsNotFittedAgainAndAgain) {
  const auto step = [&] {
    enter(kTag, 1.0);
    auto first = save(kTag, 1_MiB);
    auto second = save(kTag, 1_MiB);
    use(std::move(first));
    static_cast<void>(
        host());  // sees the first slot's fence pass, so that it does not count towards the peak
    auto third = save(kTag, 2_MiB);
    runtime_->step().leave_region(kTag);
    use(std::move(third));
    use(std::move(second));
  };
  for (int each = 0; each < 4; ++each)
    step();
  const std::uint64_t before = driver::counters().registrations;

  for (int each = 0; each < 4; ++each)
    step();

  EXPECT_EQ(driver::counters().registrations, before);
}

TEST_F(HostMemoryTest, AGraphThatLivesAcrossStepsKeepsItsBytes) {
  auto kept = forward(kTag, 1.0, {1_MiB, 1_MiB});
  runtime_->step().end(StepEnd::kRequested);
  for (int step = 0; step < 3; ++step) {
    auto saved = forward(kTag, 1.0, {3_MiB, 3_MiB});
    backward(std::move(saved));
    runtime_->step().end(StepEnd::kRequested);
  }

  EXPECT_EQ(runtime_->stats().devices.at(0).residency.on_host, 2_MiB);
  backward(std::move(kept));
}

TEST_F(HostMemoryTest, ADeviceWhoseNodesLedgerCannotBeTrustedIsATypedError) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("node." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  RuntimeOptions options;
  options.node_pinned_limit = 1_GiB;
  options.ledger = folder;
  std::ofstream(NodeLedger(folder).path()) << "something else";
  Runtime runtime(options);

  const auto device = runtime.device(DeviceId{0});

  EXPECT_EQ(device.status().code(), Code::kInvalidArgument);
  EXPECT_NE(device.status().detail().find("SPILLWAY_NODE_PINNED_LIMIT"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace spillway
