// SPDX-License-Identifier: Apache-2.0
// Run late and with the order checker: a wait that is missing is a report, and wrong values.
#include "torch_glue/model_state/overlapped_step.h"

#include "tests/torch_glue/model_state_fixture.h"
#include "torch_glue/cuda_allocator/side_stream.h"

#include <vector>

namespace spillway {
namespace {

using c10::cuda::CUDAStreamGuard;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getStreamFromPool;

/// A parameter and a gradient, in a step in which another storage has left the device.
class OverlappedStepTest : public ModelStateTest {
 protected:
  void SetUp() override {
    ModelStateTest::SetUp();
    other_ = managed(100);
    ASSERT_EQ(ManagedStorages::reclaim(device(), kSize), kSize);
    parameter_ = managed(1);
    gradient_ = manage(on_device(values(2)), ModelClass::kGradient);
  }

  void TearDown() override {
    end_overlapped();
    parameter_ = gradient_ = other_ = at::Tensor();
    ModelStateTest::TearDown();
  }

  /// As an optimizer does, with a temporary tensor.
  void step() {
    ASSERT_TRUE(begin_overlapped({parameter_, gradient_}));
    parameter_.add_(gradient_.mul(2));
    end_overlapped();
  }

  static at::Tensor stepped() { return values(1).add_(values(2).mul_(2)); }

  /// Memory of the same size on the program's stream gets other values.
  static void overwrite_free_memory() {
    for (int each = 0; each < 4; ++each)
      EXPECT_TRUE(holds(on_device(values(-7)), values(-7)));
  }

  at::Tensor other_;
  at::Tensor parameter_;
  at::Tensor gradient_;
};

TEST_F(OverlappedStepTest, ItsKernelsRunOnAStreamOfTheirOwn) {
  const auto main = getCurrentCUDAStream();
  ASSERT_TRUE(begin_overlapped({parameter_, gradient_}));
  EXPECT_NE(getCurrentCUDAStream(), main);
  EXPECT_EQ(SideStream::home_of(getCurrentCUDAStream()), main);
  EXPECT_FALSE(begin_overlapped({parameter_, gradient_}));  // within another one
  end_overlapped();
  EXPECT_EQ(getCurrentCUDAStream(), main);
  end_overlapped();
  EXPECT_EQ(getCurrentCUDAStream(), main);
}

TEST_F(OverlappedStepTest, AReadWaitsForIt) {
  step();
  EXPECT_TRUE(holds(parameter_, stepped()));
  EXPECT_TRUE(holds(gradient_, values(2)));
}

TEST_F(OverlappedStepTest, SoDoesAReadOnAnotherStreamThatHasUsedItBefore) {
  const auto other = getStreamFromPool();
  const auto read = [&] {
    at::cuda::CUDAEvent event;
    event.record(getCurrentCUDAStream());
    event.block(other);
    const CUDAStreamGuard guard(other);
    return parameter_.add(0).cpu();
  };
  EXPECT_TRUE(read().equal(values(1)));
  step();
  EXPECT_TRUE(read().equal(stepped()));
}

TEST_F(OverlappedStepTest, SoDoesAWriteToWhatItReads) {
  step();
  gradient_.zero_();
  EXPECT_TRUE(holds(parameter_, stepped()));
  EXPECT_TRUE(holds(gradient_, at::zeros({kElements})));
}

TEST_F(OverlappedStepTest, SoDoesTheNextOwnerOfItsMemory) {
  step();
  gradient_ = at::Tensor();
  overwrite_free_memory();
  EXPECT_TRUE(holds(parameter_, stepped()));
}

TEST_F(OverlappedStepTest, SoDoesACopyToTheHost) {
  step();
  offloaded(parameter_);
  overwrite_free_memory();
  EXPECT_TRUE(holds(parameter_, stepped()));
}

TEST_F(OverlappedStepTest, ItFollowsTheWorkOfTheProgramsStream) {
  parameter_.add_(10);
  gradient_ = at::Tensor();
  gradient_ = manage(on_device(values(2)), ModelClass::kGradient);
  step();
  EXPECT_TRUE(holds(parameter_, stepped().add_(10)));
}

TEST_F(OverlappedStepTest, OffloadedStoragesAreFetchedForIt) {
  offloaded(parameter_);
  offloaded(gradient_);
  step();
  EXPECT_TRUE(of(parameter_)->on_device());
  overwrite_free_memory();
  EXPECT_TRUE(holds(parameter_, stepped()));
}

TEST_F(OverlappedStepTest, PartsFollowEachOther) {
  step();
  offloaded(parameter_);
  step();
  EXPECT_TRUE(holds(parameter_, stepped().add_(values(2).mul_(2))));
}

TEST_F(OverlappedStepTest, MemoryThatACopyReadsIsUsedAfterIt) {
  const at::Tensor leaving = managed(50, 4 * kElements);
  const at::Tensor state = manage(on_device(values(3, 4 * kElements)), ModelClass::kOptimizerState);
  const auto storage = offloaded(leaving);  // its memory is free, and a copy reads it
  ASSERT_TRUE(begin_overlapped({state}));
  state.add_(state.mul(2));
  end_overlapped();
  EXPECT_TRUE(holds(leaving, values(50, 4 * kElements)));
  EXPECT_TRUE(holds(state, values(3, 4 * kElements).mul_(3)));
}

TEST_F(OverlappedStepTest, MemoryThatTheProgramsStreamHasUsedMeanwhileIsUsedAfterIt) {
  ASSERT_TRUE(begin_overlapped({parameter_}));
  std::vector<at::Tensor> read;
  {
    const CUDAStreamGuard guard(SideStream::home());
    for (int each = 0; each < 4; ++each)
      read.push_back(on_device(values(5)).add(1));
  }
  for (int each = 0; each < 4; ++each)
    parameter_.add_(parameter_.mul(1));
  end_overlapped();
  for (const at::Tensor& each : read)
    EXPECT_TRUE(holds(each, values(6)));
  EXPECT_TRUE(holds(parameter_, values(1).mul_(16)));
}

TEST_F(OverlappedStepTest, AFetchByAnotherStreamMeanwhileIsWaitedFor) {
  ASSERT_TRUE(begin_overlapped({parameter_, gradient_}));
  offloaded(gradient_);
  {
    const CUDAStreamGuard guard(SideStream::home());
    EXPECT_FALSE(gradient_.mul(1).is_cpu());
  }
  parameter_.add_(gradient_);
  offloaded(gradient_);
  {
    const CUDAStreamGuard guard(getStreamFromPool());
    EXPECT_FALSE(gradient_.mul(1).is_cpu());
  }
  parameter_.add_(gradient_);
  end_overlapped();
  EXPECT_TRUE(holds(parameter_, stepped()));
}

TEST_F(OverlappedStepTest,
       SmallTensorsWithOtherHoldersOrOneElementForManyAreLeftToTheProgramsStream) {
  ManagedStorages::instance().start(Bytes{1024});
  const at::Tensor count = on_device(values(1, 4));
  EXPECT_TRUE(begin_overlapped({parameter_, count}));
  end_overlapped();
  const at::Tensor view = on_device(values(1, 4));
  const at::Tensor other = view.narrow(0, 0, 2);
  EXPECT_FALSE(begin_overlapped({parameter_, view}));
  EXPECT_FALSE(begin_overlapped({parameter_, on_device(values(1, 1)).expand({4})}));
  ManagedStorages::instance().start(Bytes{1});
}

TEST_F(OverlappedStepTest, WhereEverythingFitsTheProgramsStreamRunsIt) {
  ManagedStorages::instance().end_step();  // nothing has left in the next one
  EXPECT_FALSE(begin_overlapped({parameter_, gradient_}));
}

TEST_F(OverlappedStepTest, SoItDoesWhereAUseWouldNotWait) {
  const at::Tensor unmanaged = on_device(values());
  EXPECT_FALSE(begin_overlapped({parameter_, unmanaged}));

  const at::Tensor shared = on_device(values());
  const at::Tensor view = shared.narrow(0, 0, 4);  // without the guard's key
  EXPECT_FALSE(begin_overlapped({manage(shared)}));

  of(gradient_)->keep_in_step(ManagedStorages::instance().step());
  EXPECT_FALSE(begin_overlapped({gradient_}));

  const at::Tensor kept = managed();
  PinnedStorages pinned;
  pinned.add(kept, /*writes=*/false);
  pinned.keep(ResidentReason::kKept);
  EXPECT_FALSE(begin_overlapped({kept}));

  const CUDAStreamGuard guard(getStreamFromPool());
  EXPECT_FALSE(begin_overlapped({other_, on_device(values())}));
  EXPECT_FALSE(begin_overlapped({managed(), kept}));
}

TEST_F(OverlappedStepTest, AStorageOfAnotherStreamsMemoryIsLeftToTheProgramsStream) {
  at::Tensor elsewhere;
  const auto other = getStreamFromPool();
  {
    const CUDAStreamGuard guard(other);
    elsewhere = managed();
  }
  EXPECT_FALSE(begin_overlapped({elsewhere}));
  const CUDAStreamGuard guard(other);
  EXPECT_TRUE(begin_overlapped({elsewhere}));
  end_overlapped();
}

TEST_F(OverlappedStepTest, AUseOfASmallTensorWaitsForTheWholeStep) {
  constexpr std::int64_t kFew = 4;
  at::Tensor count = on_device(values(1, kFew));
  ManagedStorages::instance().start(Bytes{1024});
  const auto run = [&] {
    EXPECT_TRUE(begin_overlapped({parameter_, count}));
    count.add_(1);
    parameter_.add_(1);
    end_overlapped();
  };
  run();
  EXPECT_TRUE(holds(count, values(2, kFew)));
  run();
  count = at::Tensor();  // its memory is used until the step has run
  overwrite_free_memory();
  for (int each = 0; each < 4; ++each)
    EXPECT_TRUE(holds(on_device(values(-7, kFew)), values(-7, kFew)));
  EXPECT_TRUE(holds(parameter_, values(3)));
  ManagedStorages::instance().start(Bytes{1});
}

TEST_F(OverlappedStepTest, AStreamThatTheProgramHasMadeCurrentMeanwhileStays) {
  const auto main = getCurrentCUDAStream();
  ASSERT_TRUE(begin_overlapped({parameter_}));
  const auto other = getStreamFromPool();
  c10::cuda::setCurrentCUDAStream(other);
  end_overlapped();
  EXPECT_EQ(getCurrentCUDAStream(), other);
  c10::cuda::setCurrentCUDAStream(main);
}

}  // namespace
}  // namespace spillway
