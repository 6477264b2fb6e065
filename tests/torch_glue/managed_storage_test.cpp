// SPDX-License-Identifier: Apache-2.0
#include "tests/torch_glue/model_state_fixture.h"

#include <set>

namespace spillway {
namespace {

using c10::cuda::CUDAStreamGuard;
using c10::cuda::getStreamFromPool;

void wait(const c10::cuda::CUDAStream& waiter, const c10::cuda::CUDAStream& before) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(waiter);
}

class ManagedStorageTest : public ModelStateTest {};

TEST_F(ManagedStorageTest, AUseFetchesTheBytesOfAnOffloadedStorage) {
  const at::Tensor x = managed(1);
  const at::Tensor view = x.narrow(0, 8, 8);
  const auto storage = offloaded(x);
  EXPECT_EQ(x.storage().nbytes(), kSize.count());
  EXPECT_TRUE(holds(view, values(1).narrow(0, 8, 8)));
  EXPECT_TRUE(storage->on_device());
  EXPECT_TRUE(holds(x, values(1)));
}

TEST_F(ManagedStorageTest, OffloadedStoragesHaveDifferentAddressesOutsideTheHeap) {
  std::vector<at::Tensor> all;
  std::set<const void*> seen;
  for (int i = 0; i < 8; ++i) {
    all.push_back(managed());
    offloaded(all.back());
    const void* const at = all.back().storage().data();
    EXPECT_TRUE(seen.insert(at).second);
    EXPECT_FALSE(device().heap().owns(driver::DevicePtr(at)));
  }
}

TEST_F(ManagedStorageTest, AnUnchangedStorageLeavesWithoutACopyAndAChangedOneWithACopy) {
  const at::Tensor x = managed();
  offloaded(x);
  const auto before = ManagedStorages::instance().stats();
  EXPECT_TRUE(holds(x.add(1), values(1)));
  offloaded(x);
  const auto read = ManagedStorages::instance().stats();
  EXPECT_EQ(read.copied_out, before.copied_out);
  EXPECT_EQ(read.dropped, before.dropped + kSize);
  x.add_(5);
  offloaded(x);
  EXPECT_EQ(ManagedStorages::instance().stats().copied_out, before.copied_out + kSize);
  EXPECT_TRUE(holds(x, values(5)));
}

TEST_F(ManagedStorageTest, EachStreamThatUsesAStorageWaitsForItsFetch) {
  const at::Tensor x = managed(3);
  offloaded(x);
  const auto first = getStreamFromPool();
  const auto second = getStreamFromPool();
  at::Tensor on_first;
  at::Tensor on_second;
  {
    const CUDAStreamGuard guard(first);
    on_first = x.add(1);
  }
  {
    const CUDAStreamGuard guard(second);
    on_second = x.add(2);
  }
  EXPECT_TRUE(x.add(0).cpu().equal(values(3)));
  const CUDAStreamGuard guard(second);
  EXPECT_TRUE(on_second.cpu().equal(values(5)));
  const CUDAStreamGuard other(first);
  EXPECT_TRUE(on_first.cpu().equal(values(4)));
}

TEST_F(ManagedStorageTest, AnOffloadFollowsAWriteOnAnotherStream) {
  const at::Tensor x = managed();
  const auto main = c10::cuda::getCurrentCUDAStream();
  const auto other = getStreamFromPool();
  wait(other, main);
  {
    const CUDAStreamGuard guard(other);
    x.add_(7);
  }
  offloaded(x);
  wait(main, other);
  EXPECT_TRUE(holds(x, values(7)));
}

TEST_F(ManagedStorageTest, AnOffloadFollowsAWriteOnAnotherStreamBeforeItWasManaged) {
  const at::Tensor x = at::empty({kElements}, at::device(at::kCUDA));
  const at::Tensor source = on_device(values(2));
  const auto main = c10::cuda::getCurrentCUDAStream();
  const auto other = getStreamFromPool();
  wait(other, main);
  {
    const CUDAStreamGuard guard(other);
    x.copy_(source);
    manage(x);
  }
  offloaded(x);
  wait(main, other);
  EXPECT_TRUE(holds(x, values(2)));
}

TEST_F(ManagedStorageTest, MemoryOfAnUnchangedStorageIsReusedAfterOtherStreamsHaveReadIt) {
  const at::Tensor x = managed(1);
  offloaded(x);
  EXPECT_TRUE(holds(x, values(1)));
  const auto other = getStreamFromPool();
  at::Tensor read;
  {
    const CUDAStreamGuard guard(other);
    read = x.mul(1);
  }
  const void* const block = x.storage().data();
  offloaded(x);  // without a copy, while the other stream has not read it yet
  const at::Tensor next = at::full({kElements}, -1.0F, at::device(at::kCUDA));
  ASSERT_EQ(next.storage().data(), block);
  const CUDAStreamGuard guard(other);
  EXPECT_TRUE(read.cpu().equal(values(1)));
}

TEST_F(ManagedStorageTest, AFetchedStorageThatEndsBeforeItsUseLeavesItsBlockToTheFetchFirst) {
  at::Tensor x = managed();
  offloaded(x);
  const auto other = getStreamFromPool();
  const void* block = nullptr;
  {
    const CUDAStreamGuard guard(other);
    PinnedStorages pinned;
    pinned.add(x, /*writes=*/false);
    block = x.storage().data();
  }
  x.reset();
  const CUDAStreamGuard guard(other);
  const at::Tensor next = at::full({kElements}, -1.0F, at::device(at::kCUDA));
  ASSERT_EQ(next.storage().data(), block);
  EXPECT_TRUE(next.cpu().equal(at::full({kElements}, -1.0F)));
}

TEST_F(ManagedStorageTest, AStorageIsFetchedToItsOwnDevice) {
  ASSERT_EQ(c10::cuda::device_count(), 2);
  const at::Tensor x = manage(on_device(values(4), 1));
  const auto storage = offloaded(x);
  ASSERT_EQ(current_device(), 0);
  EXPECT_TRUE(holds(x, values(4)));
  EXPECT_TRUE(device(1).heap().owns(driver::DevicePtr(x.storage().data())));
  EXPECT_EQ(current_device(), 0);
  offloaded(x);
  const at::Tensor y = managed(0);
  offloaded(y);
  y.copy_(x);  // between devices
  EXPECT_TRUE(holds(y, values(4)));
}

TEST_F(ManagedStorageTest, APressedDeviceOffloadsItsOwnStoragesOnly) {
  const at::Tensor here = managed(0, 1 << 20);
  const at::Tensor there = manage(on_device(values(0, 1 << 20), 1));
  EXPECT_EQ(ManagedStorages::reclaim(device(0), Bytes{1ULL << 40U}).count() % 4, 0U);
  EXPECT_FALSE(of(here)->on_device());
  EXPECT_TRUE(of(there)->on_device());
}

TEST_F(ManagedStorageTest,
       WhereTheSecondArgumentHasNoRoomTheFirstIsNotPinnedAndBothKeepTheirBytes) {
  constexpr std::int64_t kLarge = 8 << 20;
  const at::Tensor x = managed(1, kLarge);
  const at::Tensor y = managed(2, kLarge);
  offloaded(x);
  offloaded(y);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const Bytes reserved = device().heap().view().reserved();
  device().heap().limits().set_limit(reserved + Bytes{40 << 20});  // one of them
  EXPECT_THROW(x.add_(y), c10::OutOfMemoryError);
  EXPECT_FALSE(of(x)->pinned());
  EXPECT_FALSE(of(y)->pinned());
  EXPECT_FALSE(of(y)->on_device());
  device().heap().limits().set_limit({});
  EXPECT_TRUE(holds(x, values(1, kLarge)));
  EXPECT_TRUE(holds(y, values(2, kLarge)));
}

TEST_F(ManagedStorageTest, WhereAFetchFailsTheStorageStaysOffloadedAndItsBlockIsFreed) {
  const at::Tensor x = managed(6);
  const auto storage = offloaded(x);
  const Bytes allocated = device().heap().view().allocated();
  const Bytes only_on_host = device().residency().stats().offloaded;
  for (const char* const call : {"cuMemcpyHtoDAsync", "cuStreamWaitEvent", "cuEventRecord"}) {
    int failures = 0;
    for (int number = 1; number <= 4; ++number) {
      const std::string fault = std::string(call) + ':' + std::to_string(number) + "=out_of_memory";
      ASSERT_EQ(spillway_emulator_fault(fault.c_str()), nullptr);
      PinnedStorages pinned;
      bool failed = false;
      try {
        pinned.add(x, /*writes=*/false);
      } catch (const c10::Error&) {
        failed = true;
      }
      spillway_emulator_fault(nullptr);
      if (!failed) break;
      ++failures;
      EXPECT_FALSE(storage->pinned()) << fault;
      EXPECT_FALSE(storage->on_device()) << fault;
      EXPECT_EQ(device().heap().view().allocated(), allocated) << fault;
      EXPECT_EQ(device().residency().stats().offloaded, only_on_host) << fault;
    }
    EXPECT_GT(failures, 0) << call;
    EXPECT_TRUE(holds(x, values(6)));
    offloaded(x);
  }
  EXPECT_TRUE(holds(x, values(6)));
}

TEST_F(ManagedStorageTest, WhereHostMemoryIsRefusedTheStorageStays) {
  // More than a piece of the host arena, so that it needs one of its own.
  constexpr std::int64_t kLarge = 64 << 20;
  const at::Tensor x = managed(0, kLarge);
  spillway_emulator_fault("cuMemHostRegister:1+=out_of_memory");
  EXPECT_EQ(of(x)->offload(), Bytes{});
  EXPECT_TRUE(of(x)->on_device());
  EXPECT_EQ(x.narrow(0, kLarge - 1, 1).item<float>(), values(0, kLarge)[kLarge - 1].item<float>());
  spillway_emulator_fault(nullptr);
  offloaded(x);
}

TEST_F(ManagedStorageTest, AChangedStorageLeavesWhereThereIsHostMemoryForOneCopyOnly) {
  constexpr std::int64_t kLarge = 64 << 20;
  const at::Tensor x = at::zeros({kLarge}, at::device(at::kCUDA));
  manage(x);
  offloaded(x);
  spillway_emulator_fault("cuMemHostRegister:1+=out_of_memory");
  for (int i = 0; i < 3; ++i) {
    x.add_(1);
    offloaded(x);
  }
  EXPECT_EQ(x.sum().item<double>(), 3.0 * kLarge);
}

TEST_F(ManagedStorageTest, AResizedStorageIsManagedNoMoreAndKeepsItsBytes) {
  const at::Tensor x = managed(1);
  const auto storage = offloaded(x);
  const auto managed_before = ManagedStorages::instance().stats().classes[0].storages;
  x.resize_({2 * kElements});
  EXPECT_EQ(of(x), nullptr);
  EXPECT_FALSE(storage->pinned());
  EXPECT_TRUE(holds(x.narrow(0, 0, kElements), values(1)));
  EXPECT_EQ(ManagedStorages::instance().stats().classes[0].storages, managed_before - 1);
  EXPECT_EQ(storage->offload(), Bytes{});
}

TEST_F(ManagedStorageTest, AStorageThatEndsWhileItIsOffloadedFreesItsHostCopyAndNoBlock) {
  at::Tensor x = managed();
  offloaded(x);
  const auto bad_frees = device().heap().stats().bad_frees;
  const Bytes on_host = device().residency().stats().on_host;
  x.reset();
  EXPECT_EQ(device().residency().stats().on_host, on_host - kSize);
  EXPECT_EQ(device().heap().stats().bad_frees, bad_frees);
}

TEST_F(ManagedStorageTest, AStorageWithAnUnguardedAliasStaysUntilThatEnds) {
  at::Tensor x = on_device(values());
  at::Tensor alias = x.detach();  // before the key
  manage(x);
  EXPECT_EQ(of(x)->offload(), Bytes{});
  EXPECT_TRUE(holds(alias, values()));
  alias.reset();
  offloaded(x);
}

TEST_F(ManagedStorageTest, MemoryOfOtherOwnersAndLazyCopiesAreNotManaged) {
  const at::Tensor x = on_device(values());
  bool freed = false;
  {
    at::Tensor borrowed = at::from_blob(
        x.data_ptr(), {kElements}, [&](void*) { freed = true; }, x.options());
    EXPECT_EQ(ManagedStorages::instance().manage(borrowed, ModelClass::kParameter, {}, 0),
              Unmanaged::kOtherMemory);
  }
  EXPECT_TRUE(freed);
  const at::Tensor copy = at::_lazy_clone(x);
  EXPECT_EQ(ManagedStorages::instance().manage(copy, ModelClass::kParameter, {}, 0),
            Unmanaged::kOtherMemory);
  EXPECT_EQ(ManagedStorages::instance().manage(x, ModelClass::kParameter, {}, 0),
            Unmanaged::kOtherMemory);
}

TEST_F(ManagedStorageTest, MemoryThatOtherProcessesCanMapStays) {
  constexpr std::int64_t kLarge = 4 << 20;
  const at::Tensor x = managed(0, kLarge);
  offloaded(x);
  EXPECT_TRUE(holds(x, values(0, kLarge)));
  ASSERT_TRUE(device().heap().share(driver::DevicePtr(x.storage().data())).ok());
  EXPECT_EQ(of(x)->offload(), Bytes{});
  EXPECT_TRUE(of(x)->kept());
}

TEST_F(ManagedStorageTest, AKeptStorageStaysInItsStep) {
  const at::Tensor x = managed();
  of(x)->keep_in_step(ManagedStorages::instance().step());
  EXPECT_EQ(of(x)->offload(), Bytes{});
  ManagedStorages::instance().end_step();
  offloaded(x);
}

TEST_F(ManagedStorageTest, TheStatesOfAStorageFollowItsCopies) {
  const at::Tensor x = managed();
  const auto storage = of(x);
  EXPECT_EQ(storage->residency(), StorageResidency::kResident);
  offloaded(x);
  EXPECT_EQ(storage->residency(), StorageResidency::kOffloading);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(storage->residency(), StorageResidency::kOffloaded);
  {
    PinnedStorages pinned;
    pinned.add(x, false);
    EXPECT_EQ(storage->residency(), StorageResidency::kFetching);
    EXPECT_EQ(storage->offload(), Bytes{});  // it is pinned
  }
  EXPECT_EQ(storage->offload(), kSize);  // although the fetch has not passed
  EXPECT_EQ(storage->residency(), StorageResidency::kOffloaded);
  EXPECT_TRUE(holds(x, values()));
  EXPECT_EQ(storage->residency(), StorageResidency::kResident);
}

}  // namespace
}  // namespace spillway
