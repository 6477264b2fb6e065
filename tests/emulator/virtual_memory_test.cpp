// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

#include <sys/stat.h>
#include <unistd.h>

#include <limits>

namespace {

using namespace emulated;

/// A reservation of eight units and a handle of one.
class VirtualMemoryTest : public emulated::Test {
 protected:
  void SetUp() override {
    emulated::Test::SetUp();
    ASSERT_EQ(CU(MemAddressReserve, 10020)(&base_, 8 * kUnit, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(create(kUnit, &handle_), CUDA_SUCCESS);
  }

  void TearDown() override {
    CU(MemUnmap, 10020)(base_, kUnit);
    CU(MemRelease, 10020)(handle_);
    CU(MemAddressFree, 10020)(base_, 8 * kUnit);
    EXPECT_EQ(spillway_emulator_used(0), 0U);
  }

  static CUresult create(std::size_t bytes, CUmemGenericAllocationHandle* handle, int device = 0) {
    const CUmemAllocationProp properties = memory_of(device);
    return CU(MemCreate, 10020)(handle, bytes, &properties, 0);
  }

  CUresult map(CUdeviceptr at, std::size_t bytes = kUnit, std::size_t offset = 0) const {
    return CU(MemMap, 10020)(at, bytes, offset, handle_, 0);
  }

  static CUresult open(CUdeviceptr at,
                       std::size_t bytes,
                       CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access = access_of(0, flags);
    return CU(MemSetAccess, 10020)(at, bytes, &access, 1);
  }

  [[nodiscard]] char* bytes() const { return reinterpret_cast<char*>(base_); }

  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

TEST_F(VirtualMemoryTest, MappedMemoryCanBeUsedAfterAccessWasSet) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);

  bytes()[kUnit - 1] = 7;

  EXPECT_EQ(bytes()[kUnit - 1], 7);
}

TEST_F(VirtualMemoryTest, AMappingWithoutAccessFaults) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);

  EXPECT_DEATH(bytes()[0] = 1, "the host touched device memory at 0x");
}

TEST_F(VirtualMemoryTest, TouchingEvictedMemoryFaults) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);

  EXPECT_DEATH(bytes()[0] = 1, "the host touched device memory at 0x");
}

TEST_F(VirtualMemoryTest, BytesOfAHandleSurviveUnmapAndMapElsewhere) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);
  bytes()[3] = 42;

  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(map(base_ + 4 * kUnit), CUDA_SUCCESS);
  ASSERT_EQ(open(base_ + 4 * kUnit, kUnit), CUDA_SUCCESS);

  EXPECT_EQ(bytes()[4 * kUnit + 3], 42);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + 4 * kUnit, kUnit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, ANewHandleReadsNoBytesOfAFreedOne) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);
  bytes()[0] = 42;
  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemRelease, 10020)(handle_), CUDA_SUCCESS);

  ASSERT_EQ(create(kUnit, &handle_), CUDA_SUCCESS);
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);

  EXPECT_EQ(bytes()[0], 0);
}

TEST_F(VirtualMemoryTest, ReserveRefusesWhatTheDriverRefuses) {
  const auto reserve = CU(MemAddressReserve, 10020);
  CUdeviceptr at = 0;

  EXPECT_EQ(reserve(&at, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(&at, kUnit + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(&at, kUnit, 3 * kUnit, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(&at, kUnit, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(&at, kUnit, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(at, 0U);
}

TEST_F(VirtualMemoryTest, AReservationPastTheAddressSpaceIsOutOfMemory) {
  CUdeviceptr at = 0;
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 4096 * 4096;

  EXPECT_EQ(CU(MemAddressReserve, 10020)(&at, most, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemoryTest, ReservationsKeepTheirAlignment) {
  CUdeviceptr at = 0;

  ASSERT_EQ(CU(MemAddressReserve, 10020)(&at, kUnit, 64 * kUnit, 0, 0), CUDA_SUCCESS);

  EXPECT_EQ(at % (64 * kUnit), 0U);
  EXPECT_EQ(CU(MemAddressFree, 10020)(at, kUnit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, PartOfAReservationCannotBeFreed) {
  EXPECT_EQ(CU(MemAddressFree, 10020)(base_, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemAddressFree, 10020)(base_ + kUnit, 7 * kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, AMappedReservationCannotBeFreed) {
  ASSERT_EQ(map(base_ + kUnit), CUDA_SUCCESS);

  EXPECT_EQ(CU(MemAddressFree, 10020)(base_, 8 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + kUnit, kUnit), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, MapRefusesUnalignedAndOffsetRanges) {
  EXPECT_EQ(map(base_ + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(base_, kUnit / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(base_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(base_, kUnit, kUnit), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(VirtualMemoryTest, MapRefusesMoreThanTheHandleHolds) {
  EXPECT_EQ(map(base_, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, MapRefusesAddressesOutsideOneReservation) {
  EXPECT_EQ(map(base_ + 8 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(base_ - kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, MapRefusesAPlaceThatIsTaken) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);

  EXPECT_EQ(map(base_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, UnknownHandlesAreRefused) {
  EXPECT_EQ(CU(MemMap, 10020)(base_, kUnit, 0, 0xBAD, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemRelease, 10020)(0xBAD), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, AReleasedHandleCannotBeMappedAgain) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemRelease, 10020)(handle_), CUDA_SUCCESS);

  EXPECT_EQ(map(base_ + kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemRelease, 10020)(handle_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, AMappingIsUnmappedAsAWhole) {
  CUmemGenericAllocationHandle big = 0;
  ASSERT_EQ(create(2 * kUnit, &big), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemMap, 10020)(base_ + 2 * kUnit, 2 * kUnit, 0, big, 0), CUDA_SUCCESS);

  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + 2 * kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + 3 * kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + 2 * kUnit, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(big), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, UnmappedAddressesCannotBeUnmapped) {
  EXPECT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, AccessNeedsAFullyMappedRange) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);

  EXPECT_EQ(open(base_, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(open(base_ + kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, NeitherAccessNorUnmapReachesAcrossAHole) {
  CUmemGenericAllocationHandle other = 0;
  ASSERT_EQ(create(kUnit, &other), CUDA_SUCCESS);
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemMap, 10020)(base_ + 2 * kUnit, kUnit, 0, other, 0), CUDA_SUCCESS);

  EXPECT_EQ(open(base_, 3 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_, 3 * kUnit), CUDA_ERROR_INVALID_VALUE);

  unsigned long long flags = 99;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(CU(MemGetAccess, 10020)(&flags, &here, base_), CUDA_SUCCESS) << "still mapped";
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_ + 2 * kUnit, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(other), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, AccessForAnUnknownDeviceIsRefused) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  const CUmemAccessDesc access = access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  EXPECT_EQ(CU(MemSetAccess, 10020)(base_, kUnit, &access, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(VirtualMemoryTest, CreateRefusesWhatTheDriverRefuses) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp on_host = memory_of(0);
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST;

  EXPECT_EQ(create(0, &handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(kUnit + 4096, &handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(kUnit, &handle, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(create(kUnit, &handle, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &on_host, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(handle, 0U);
}

TEST_F(VirtualMemoryTest, MemoryBeyondTheCapacityIsOutOfMemoryAndTakesNothing) {
  CUmemGenericAllocationHandle handle = 0;
  const auto used = spillway_emulator_used(0);

  EXPECT_EQ(create(64 * emulated::kMiB, &handle), CUDA_ERROR_OUT_OF_MEMORY);

  EXPECT_EQ(spillway_emulator_used(0), used);
}

TEST_F(VirtualMemoryTest, EachDeviceHasItsOwnCapacity) {
  CUmemGenericAllocationHandle other = 0;
  ASSERT_EQ(create(64 * emulated::kMiB, &other, 1), CUDA_SUCCESS);

  EXPECT_EQ(spillway_emulator_used(1), 64 * emulated::kMiB);
  EXPECT_EQ(spillway_emulator_used(0), kUnit);
  EXPECT_EQ(CU(MemRelease, 10020)(other), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, PhysicalMemoryLivesUntilTheLastMappingAndReferenceAreGone) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  CUmemGenericAllocationHandle same = 0;
  ASSERT_EQ(CU(MemRetainAllocationHandle, 11000)(&same, bytes() + 5), CUDA_SUCCESS);

  EXPECT_EQ(same, handle_);
  EXPECT_EQ(CU(MemRelease, 10020)(handle_), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(spillway_emulator_used(0), kUnit);
  EXPECT_EQ(CU(MemRelease, 10020)(same), CUDA_SUCCESS);
  EXPECT_EQ(spillway_emulator_used(0), 0U);
}

TEST_F(VirtualMemoryTest, CopiesNeedAccessAtEveryByte) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  std::vector<char> host(2 * kUnit);
  const auto to_device = CU(MemcpyHtoD, 3020);

  EXPECT_EQ(to_device(base_, host.data(), 16), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(open(base_, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(to_device(base_, host.data(), 16), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(to_device(base_, host.data(), 16), CUDA_SUCCESS);
  EXPECT_EQ(to_device(base_ + kUnit - 8, host.data(), 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, OwnsReservedAddressesMappedOrNot) {
  EXPECT_EQ(spillway_emulator_owns(bytes() + 5 * kUnit), 1);
  EXPECT_EQ(spillway_emulator_owns(this), 0);
}

/// What the machine holds for all physical memory together.
blkcnt_t blocks_behind_all_handles() {
  blkcnt_t all = 0;
  for (int file = 0; file < 1024; ++file) {
    char path[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    if (readlink(link.c_str(), path, sizeof path - 1) < 0) continue;

    struct stat status {};

    if (std::strstr(path, "spillway-device-memory") == nullptr) continue;
    if (fstat(file, &status) == 0) all += status.st_blocks;
  }
  return all;
}

TEST_F(VirtualMemoryTest, FreedPhysicalMemoryGoesBackToTheMachine) {
  ASSERT_EQ(map(base_), CUDA_SUCCESS);
  ASSERT_EQ(open(base_, kUnit), CUDA_SUCCESS);
  std::memset(bytes(), 1, kUnit);
  const blkcnt_t held = blocks_behind_all_handles();

  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemRelease, 10020)(handle_), CUDA_SUCCESS);

  EXPECT_GT(held, 0);
  EXPECT_EQ(blocks_behind_all_handles(), 0);
}

TEST_F(VirtualMemoryTest, ManyHandlesNeedNoFileEach) {
  std::vector<CUmemGenericAllocationHandle> handles(24);
  for (auto& handle : handles)
    ASSERT_EQ(create(kUnit, &handle), CUDA_SUCCESS);

  const int next_file = dup(0);

  EXPECT_LT(next_file, 24);
  close(next_file);
  for (const auto handle : handles)
    EXPECT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
}

}  // namespace
