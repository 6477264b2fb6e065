// SPDX-License-Identifier: Apache-2.0
// Copies of managed storages before their time: prefetches, and copies to the host before they
// leave.
#include "tests/torch_glue/model_state_fixture.h"

namespace spillway {
namespace {

using c10::cuda::CUDAStreamGuard;
using c10::cuda::getStreamFromPool;

class CopiesAheadTest : public ModelStateTest {};

TEST_F(CopiesAheadTest, UsesOnAnyStreamFollowAPrefetch) {
  for (const bool on_other : {false, true}) {
    const at::Tensor x = managed(3);
    const auto storage = offloaded(x);
    const auto before = ManagedStorages::instance().stats();
    const auto main = c10::cuda::getCurrentCUDAStream();
    EXPECT_TRUE(storage->prefetch(main));
    EXPECT_FALSE(storage->prefetch(main));  // it is on its way
    EXPECT_TRUE(storage->on_device());
    EXPECT_EQ(ManagedStorages::instance().stats().prefetched, before.prefetched + kSize);
    const CUDAStreamGuard guard(on_other ? getStreamFromPool() : main);
    EXPECT_TRUE(x.add(1).cpu().equal(values(4)));
  }
}

TEST_F(CopiesAheadTest, APrefetchFillsMemoryThatACopyToTheHostStillReads) {
  const at::Tensor x = managed(1);
  const at::Tensor y = managed(2);
  offloaded(y);
  EXPECT_TRUE(
      holds(y, values(2)));  // from here on no later fetch of it waits for copies to the host
  const auto next = offloaded(y);
  const void* const block = x.storage().data();
  offloaded(x);
  EXPECT_TRUE(next->prefetch(c10::cuda::getCurrentCUDAStream()));
  EXPECT_EQ(y.storage().data(), block);
  EXPECT_TRUE(holds(y, values(2)));
  EXPECT_TRUE(holds(x, values(1)));
}

TEST_F(CopiesAheadTest, APrefetchedStorageMayLeaveOrEndBeforeItsUse) {
  at::Tensor x = managed(1);
  const auto storage = offloaded(x);
  const auto main = c10::cuda::getCurrentCUDAStream();
  ASSERT_TRUE(storage->prefetch(main));
  const void* const block = x.storage().data();
  EXPECT_EQ(storage->offload(), kSize);
  const at::Tensor next = at::full({kElements}, -1.0F, at::device(at::kCUDA));
  ASSERT_EQ(next.storage().data(), block);
  EXPECT_TRUE(next.cpu().equal(at::full({kElements}, -1.0F)));
  EXPECT_TRUE(holds(x, values(1)));
  offloaded(x);
  ASSERT_TRUE(storage->prefetch(main));
  const void* const last = x.storage().data();
  x.reset();
  const at::Tensor other = at::full({kElements}, -2.0F, at::device(at::kCUDA));
  ASSERT_EQ(other.storage().data(), last);
  EXPECT_TRUE(other.cpu().equal(at::full({kElements}, -2.0F)));
}

TEST_F(CopiesAheadTest, APrefetchWithoutRoomChangesNothing) {
  constexpr std::int64_t kLarge = 8 << 20;
  const at::Tensor x = managed(1, kLarge);
  const auto storage = offloaded(x);
  c10::cuda::CUDACachingAllocator::emptyCache();
  device().heap().limits().set_limit(device().heap().view().reserved() + Bytes{2 << 20});
  EXPECT_FALSE(storage->prefetch(c10::cuda::getCurrentCUDAStream()));
  EXPECT_FALSE(storage->on_device());
  device().heap().limits().set_limit({});
  EXPECT_TRUE(holds(x, values(1, kLarge)));
}

TEST_F(CopiesAheadTest, AnOffloadedStorageIsReadOnTheHostAfterItsCopy) {
  const at::Tensor x = managed(1);
  const auto storage = of(x);
  at::Tensor read = at::empty({kElements});
  EXPECT_FALSE(storage->read_offloaded(static_cast<std::byte*>(read.mutable_data_ptr())));
  x.add_(1);
  offloaded(x);
  EXPECT_TRUE(storage->read_offloaded(static_cast<std::byte*>(read.mutable_data_ptr())));
  EXPECT_TRUE(read.equal(values(2)));
  EXPECT_FALSE(storage->on_device());
  EXPECT_FALSE(storage->pinned());
}

TEST_F(CopiesAheadTest, WhatLeftInTheLastStepIsCopiedAfterItsUseAndThenLeavesWithoutACopy) {
  ManagedStorages& all = ManagedStorages::instance();
  const at::Tensor x = managed(1);
  const at::Tensor y = managed(2);
  manage(on_device(values(3)), ModelClass::kGradient);  // it trains
  const auto copied = [&] {
    return all.stats().copied_out;
  };
  all.end_step();
  for (int step = 0; step < 4; ++step) {
    const Bytes begin = copied();
    x.add_(1);
    y.add_(1);
    EXPECT_EQ(copied() - begin, step == 0 ? Bytes{} : kSize) << step;
    EXPECT_TRUE(of(x)->on_device());
    const Bytes before = copied();
    EXPECT_EQ(ManagedStorages::reclaim(device(), kSize + kSize), kSize + kSize);
    EXPECT_EQ(copied() - before, step == 0 ? kSize + kSize : kSize) << step;  // y was used last
    all.end_step();
  }
  EXPECT_TRUE(holds(x, values(5)));
  EXPECT_TRUE(holds(y, values(6)));
}

TEST_F(CopiesAheadTest, WhatLeftInTheLastStepIsCopiedAfterItsLastWriteBeforeItIsRead) {
  ManagedStorages& all = ManagedStorages::instance();
  const at::Tensor x = managed(1);
  const at::Tensor y = managed(2);
  manage(on_device(values(3)), ModelClass::kGradient);  // it trains
  all.end_step();
  for (int step = 0; step < 3; ++step) {
    const Bytes begin = all.stats().copied_out;
    x.add_(1);
    y.sum();
    EXPECT_EQ(all.stats().copied_out - begin, step == 0 ? Bytes{} : kSize) << step;
    EXPECT_TRUE(holds(x, values(2.0F + static_cast<float>(step))));
    of(y)->keep(ResidentReason::kKept);  // so that x leaves
    EXPECT_EQ(ManagedStorages::reclaim(device(), kSize), kSize);
    EXPECT_FALSE(of(x)->on_device());
    EXPECT_EQ(all.stats().copied_out - begin, kSize) << step;
    all.end_step();
  }
}

TEST_F(CopiesAheadTest, WhatWasCopiedAheadLeavesWithoutACopyUnlessItIsWritten) {
  const at::Tensor x = managed(1);
  const auto storage = of(x);
  EXPECT_EQ(storage->copy_ahead(), kSize);
  EXPECT_EQ(storage->copy_ahead(), Bytes{});  // its host copy is right
  EXPECT_TRUE(storage->on_device());
  const Bytes copied = ManagedStorages::instance().stats().copied_out;
  offloaded(x);
  EXPECT_EQ(ManagedStorages::instance().stats().copied_out, copied);
  EXPECT_TRUE(holds(x, values(1)));
  x.add_(1);
  EXPECT_EQ(storage->copy_ahead(), kSize);
  x.add_(1);  // follows the copy, which reads the same memory
  offloaded(x);
  EXPECT_EQ(ManagedStorages::instance().stats().copied_out, copied + kSize + kSize);
  EXPECT_TRUE(holds(x, values(3)));
}

}  // namespace
}  // namespace spillway
