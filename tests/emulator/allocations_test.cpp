// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

#include <limits>
#include <thread>

namespace {

using namespace emulated;

class AllocationsTest : public emulated::Test {};

TEST_F(AllocationsTest, FreeMemoryFallsAndRises) {
  std::size_t before = 0;
  std::size_t during = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  void* at = nullptr;

  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&at, 10 * kMiB), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&during, &total), cudaSuccess);
  ASSERT_EQ(cudaFree(at), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);

  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(before - during, 10 * kMiB);
  EXPECT_EQ(after, before);
}

TEST_F(AllocationsTest, RowsBeginAtMultiplesOfThePitch) {
  void* at = nullptr;
  std::size_t pitch = 0;
  CUdeviceptr address = 0;
  const auto allocate = CU(MemAllocPitch, 3020);

  ASSERT_EQ(cudaMallocPitch(&at, &pitch, 700, 3), cudaSuccess);
  EXPECT_EQ(pitch, 1024U);
  EXPECT_EQ(cudaMemset2D(at, pitch, 7, 700, 3), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaSuccess);

  EXPECT_EQ(allocate(&address, &pitch, 512, 3, 5), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(&address, &pitch, 0, 3, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(&address, &pitch, SIZE_MAX, 3, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(&address, &pitch, SIZE_MAX / 2, 3, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(AllocationsTest, MoreThanTheDeviceHasIsOutOfMemoryAndLeavesTheRestUsable) {
  const emulated::DeviceBytes most(60 * kMiB);
  void* at = &at;

  EXPECT_EQ(cudaMalloc(&at, 8 * kMiB), cudaErrorMemoryAllocation);
  EXPECT_EQ(at, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&at, 4 * kMiB), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

TEST_F(AllocationsTest, SizesNearTheEndOfTheAddressSpaceAreOutOfMemory) {
  void* at = nullptr;

  EXPECT_EQ(cudaMalloc(&at, std::numeric_limits<std::size_t>::max()), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocHost(&at, std::numeric_limits<std::size_t>::max()),
            cudaErrorMemoryAllocation);
}

TEST_F(AllocationsTest, PeakRemembersAndCanBeReset) {
  spillway_emulator_reset_peak(0);
  { const emulated::DeviceBytes block(16 * kMiB); }

  EXPECT_EQ(spillway_emulator_peak(0), 16 * kMiB);
  spillway_emulator_reset_peak(0);
  EXPECT_EQ(spillway_emulator_peak(0), 0U);
}

TEST_F(AllocationsTest, OnlyTheBeginOfALivingBlockCanBeFreed) {
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, kUnit), cudaSuccess);

  EXPECT_EQ(cudaFree(static_cast<char*>(at) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(AllocationsTest, ACopyPastTheEndOfABlockIsRefused) {
  const emulated::DeviceBytes block(kUnit);
  std::vector<char> host(kUnit + 1);

  EXPECT_EQ(cudaMemcpy(block.at(), host.data(), kUnit + 1, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(block.at(), host.data(), kUnit, cudaMemcpyHostToDevice), cudaSuccess);
}

TEST_F(AllocationsTest, StreamOrderedMemoryIsCountedByItsPool) {
  cudaMemPool_t pool = nullptr;
  std::uint64_t used = 0;
  void* at = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&at, 1000, nullptr), cudaSuccess);

  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
  EXPECT_EQ(used, 1024U);
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &used), cudaSuccess);
  EXPECT_EQ(used, kUnit);

  ASSERT_EQ(cudaFreeAsync(at, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
  EXPECT_EQ(used, 0U);
}

TEST_F(AllocationsTest, SmallBlocksShareAPageThatIsChargedAsAWhole) {
  const auto used = spillway_emulator_used(0);
  const emulated::DeviceBytes first(1);
  const emulated::DeviceBytes second(700);

  EXPECT_EQ(spillway_emulator_used(0), used + kUnit);
  EXPECT_EQ(second.at() - first.at(), 512);
}

TEST_F(AllocationsTest, ASharedPageFaultsWhenAllItsBlocksAreFree) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&second, 1), cudaSuccess);
  auto* byte = static_cast<volatile char*>(first);

  ASSERT_EQ(cudaFree(first), cudaSuccess);
  *byte = 1;
  ASSERT_EQ(cudaFree(second), cudaSuccess);

  EXPECT_DEATH(*byte = 1, "the host touched device memory at 0x");
}

TEST_F(AllocationsTest, AFreedLargeBlockFaults) {
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 2 * kUnit), cudaSuccess);
  auto* byte = static_cast<volatile char*>(at);
  ASSERT_EQ(cudaFree(at), cudaSuccess);

  EXPECT_DEATH(*byte = 1, "the host touched device memory at 0x");
}

TEST_F(AllocationsTest, ABlockCountsAsWholePages) {
  const auto used = spillway_emulator_used(0);
  const emulated::DeviceBytes block(kUnit + 1);

  EXPECT_EQ(spillway_emulator_used(0), used + 2 * kUnit);
}

TEST_F(AllocationsTest, NewMemoryReadsNoBytesOfAFreedBlock) {
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, kUnit), cudaSuccess);
  std::memset(at, 7, kUnit);
  ASSERT_EQ(cudaFree(at), cudaSuccess);
  void* again = nullptr;
  ASSERT_EQ(cudaMalloc(&again, kUnit), cudaSuccess);

  EXPECT_EQ(again, at);
  EXPECT_EQ(static_cast<char*>(again)[kUnit - 1], 0);
  EXPECT_EQ(cudaFree(again), cudaSuccess);
}

TEST_F(AllocationsTest, TheAddressRangeOfABlockIsWhatWasAskedFor) {
  const emulated::DeviceBytes block(1000);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;

  ASSERT_EQ(
      CU(MemGetAddressRange, 3020)(&base, &bytes, reinterpret_cast<CUdeviceptr>(block.at() + 999)),
      CUDA_SUCCESS);

  EXPECT_EQ(base, reinterpret_cast<CUdeviceptr>(block.at()));
  EXPECT_EQ(bytes, 1000U);
}

TEST_F(AllocationsTest, OverlappingRegistrationsAreRefused) {
  constexpr std::size_t kPage = 4096;
  std::vector<char> memory(3 * kPage);
  ASSERT_EQ(cudaHostRegister(memory.data(), 2 * kPage, 0), cudaSuccess);

  EXPECT_EQ(cudaHostRegister(memory.data() + kPage, 2 * kPage, 0),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostUnregister(memory.data() + kPage), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(AllocationsTest, ThePeakOfPageLockedMemoryIsOfAllThatIsLockedAtOnce) {
  constexpr std::size_t kLocked = 3 * 4096;
  std::vector<char> memory(kLocked);
  void* allocated = nullptr;
  ASSERT_EQ(cudaHostAlloc(&allocated, spillway_emulator_host_peak() + kLocked, 0), cudaSuccess);
  const std::uint64_t most = spillway_emulator_host_peak();
  EXPECT_GE(most, kLocked);

  ASSERT_EQ(cudaHostRegister(memory.data(), kLocked, 0), cudaSuccess);
  EXPECT_EQ(spillway_emulator_host_peak(), most + kLocked);

  ASSERT_EQ(cudaFreeHost(allocated), cudaSuccess);
  ASSERT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(memory.data(), kLocked, 0), cudaSuccess);
  EXPECT_EQ(spillway_emulator_host_peak(), most + kLocked);
  ASSERT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
}

TEST_F(AllocationsTest, DeviceMemoryCannotBeRegistered) {
  const emulated::DeviceBytes block(kUnit);

  EXPECT_EQ(cudaHostRegister(block.at(), 4096, 0), cudaErrorInvalidValue);
}

TEST_F(AllocationsTest, PointerAttributesReportTheKindOfMemory) {
  const emulated::DeviceBytes on_device(kUnit);
  const emulated::LockedBytes locked(4096, 0);
  int pageable = 0;
  cudaPointerAttributes attributes{};

  ASSERT_EQ(cudaPointerGetAttributes(&attributes, on_device.at() + 9), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, locked.at()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &pageable), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(AllocationsTest, CallsAndPhysicalMemoryAreCounted) {
  const auto calls = count("cudaMalloc");
  const auto physical = count("device_allocations");
  const auto registrations = count("host_registrations");

  { const emulated::DeviceBytes block(kUnit); }
  { const emulated::LockedBytes locked(4096, 0); }

  EXPECT_EQ(count("cudaMalloc"), calls + 1);
  EXPECT_EQ(count("device_allocations"), physical + 1);
  EXPECT_EQ(count("host_registrations"), registrations + 1);
  EXPECT_EQ(count("cuNothingOfThatName"), 0U);
}

TEST_F(AllocationsTest, AFailedAllocationIsACallButNoPhysicalMemory) {
  const auto calls = count("cudaMalloc");
  const auto physical = count("device_allocations");
  void* at = nullptr;

  EXPECT_EQ(cudaMalloc(&at, 100 * kMiB), cudaErrorMemoryAllocation);

  EXPECT_EQ(count("cudaMalloc"), calls + 1);
  EXPECT_EQ(count("device_allocations"), physical);
}

TEST_F(AllocationsTest, ThreadsAllocateAndFreeAtOnce) {
  const auto work = [] {
    for (int i = 0; i < 200; ++i) {
      const emulated::DeviceBytes block(4096);
      const emulated::LockedBytes locked(4096, static_cast<char>(i));
      cudaStream_t stream = emulated::make_stream();
      emulated::copy(block.at(), locked.at(), 4096, stream);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
      EXPECT_EQ(block.at()[4095], static_cast<char>(i));
    }
  };

  std::thread first(work);
  std::thread second(work);
  work();
  first.join();
  second.join();

  EXPECT_EQ(spillway_emulator_used(0), 0U);
}

}  // namespace
