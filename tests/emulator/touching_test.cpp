// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

namespace {

using namespace emulated;

/// An illegal address stays with its process, so each case has one of its own. The first line that
/// it wrote, or "allowed", and at the end the error that stayed.
template <typename Body>
std::string verdict(Body body) {
  return in_process({}, [&] {
    cudaSetDevice(0);
    const int allowed = body();
    dprintf(
        STDOUT_FILENO, "%s %d\n", allowed == 1 ? "allowed" : "refused", cudaDeviceSynchronize());
  });
}

int touch(const void* at, std::size_t bytes, bool write = true) {
  return spillway_emulator_touch(nullptr, at, bytes, write ? 1 : 0, "aten::add");
}

char* allocate(std::size_t bytes) {
  void* at = nullptr;
  cudaMalloc(&at, bytes);
  return static_cast<char*>(at);
}

/// Two mapped units of device memory, each with `flags` for device 0.
char* map(CUmemAccess_flags flags, std::size_t units = 2) {
  CUdeviceptr base = 0;
  CU(MemAddressReserve, 10020)(&base, 4 * kUnit, 0, 0, 0);
  const CUmemAllocationProp properties = memory_of(0);
  const CUmemAccessDesc access = access_of(0, flags);
  for (std::size_t i = 0; i < units; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    CU(MemCreate, 10020)(&handle, kUnit, &properties, 0);
    CU(MemMap, 10020)(base + i * kUnit, kUnit, 0, handle, 0);
  }
  CU(MemSetAccess, 10020)(base, units * kUnit, &access, 1);
  return reinterpret_cast<char*>(base);
}

void expect_refused(const std::string& written, const char* why) {
  EXPECT_NE(written.find("spillway-emulator: illegal address: \"aten::add\" on device"),
            std::string::npos)
      << written;
  EXPECT_NE(written.find(why), std::string::npos) << written;
  EXPECT_NE(written.find("refused 700\n"), std::string::npos) << written;
}

TEST(TouchingTest, ABlockOfTheDeviceIsAllowed) {
  EXPECT_EQ(verdict([] { return touch(allocate(kUnit), kUnit); }), "allowed 0\n");
}

TEST(TouchingTest, NoBytesAreAlwaysAllowed) {
  EXPECT_EQ(verdict([] { return touch(nullptr, 0); }), "allowed 0\n");
}

TEST(TouchingTest, PastTheEndOfABlockIsIllegal) {
  expect_refused(verdict([] { return touch(allocate(kUnit), kUnit + 1); }), "writes 2097153 bytes");
}

TEST(TouchingTest, FreedMemoryIsIllegalAlthoughItWasAllowedBefore) {
  expect_refused(verdict([] {
                   char* at = allocate(kUnit);
                   if (touch(at, 1) == 0) return 1;
                   cudaFree(at);
                   return touch(at, 1);
                 }),
                 "on device 0 writes 1 bytes");
}

TEST(TouchingTest, MappingsWithAccessAreAllowedAcrossTheirBorder) {
  EXPECT_EQ(verdict([] { return touch(map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE) + kUnit - 8, 16); }),
            "allowed 0\n");
}

TEST(TouchingTest, AnUnmappedUnitIsIllegal) {
  expect_refused(
      verdict([] { return touch(map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE) + 2 * kUnit - 8, 16); }),
      "it is not mapped");
}

TEST(TouchingTest, AnEvictedUnitIsIllegalAlthoughItWasAllowedBefore) {
  expect_refused(verdict([] {
                   char* at = map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                   if (touch(at, 1) == 0) return 1;
                   CU(MemUnmap, 10020)(reinterpret_cast<CUdeviceptr>(at), kUnit);
                   return touch(at, 1);
                 }),
                 "it is not mapped");
}

TEST(TouchingTest, AccessThatWasTakenIsGoneAlthoughItWasAllowedBefore) {
  expect_refused(verdict([] {
                   char* at = map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                   if (touch(at, kUnit) == 0) return 1;
                   const CUmemAccessDesc none = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
                   CU(MemSetAccess, 10020)(reinterpret_cast<CUdeviceptr>(at), kUnit, &none, 1);
                   return touch(at, kUnit);
                 }),
                 "on device 0 writes");
}

TEST(TouchingTest, WritingWhatMayOnlyBeReadIsIllegal) {
  expect_refused(verdict([] {
                   char* at = map(CU_MEM_ACCESS_FLAGS_PROT_READ);
                   if (touch(at, 1, false) == 0) return 1;
                   return touch(at, 1);
                 }),
                 "no such access (cuMemSetAccess)");
}

TEST(TouchingTest, PageLockedMemoryIsAllowedAcrossRegistrationsThatMeet) {
  EXPECT_EQ(verdict([] {
              auto* memory = static_cast<char*>(aligned_alloc(4096, 3UL * 4096));
              cudaHostRegister(memory, 4096, 0);
              cudaHostRegister(memory + 4096, 4096, 0);
              return touch(memory + 4000, 2000);
            }),
            "allowed 0\n");
}

TEST(TouchingTest, PageableMemoryIsIllegal) {
  expect_refused(verdict([] {
                   int here = 0;
                   return touch(&here, sizeof here, false);
                 }),
                 "reads 4 bytes");
}

TEST(TouchingTest, AnotherDevicesMemoryNeedsPeerAccess) {
  const auto body = [](bool enable) {
    return [=] {
      cudaSetDevice(1);
      char* at = allocate(kUnit);
      cudaSetDevice(0);
      if (enable) cudaDeviceEnablePeerAccess(1, 0);
      return touch(at, kUnit);
    };
  };

  EXPECT_EQ(verdict(body(true)), "allowed 0\n");
  expect_refused(verdict(body(false)), "another device, without peer access");
}

TEST(TouchingTest, PeerAccessThatWasDisabledIsGone) {
  expect_refused(verdict([] {
                   cudaSetDevice(1);
                   char* at = allocate(kUnit);
                   cudaSetDevice(0);
                   cudaDeviceEnablePeerAccess(1, 0);
                   if (touch(at, 1) == 0) return 1;
                   cudaDeviceDisablePeerAccess(1);
                   return touch(at, 1);
                 }),
                 "another device, without peer access");
}

TEST(TouchingTest, PeerAccessDoesNotOpenMappedMemory) {
  expect_refused(verdict([] {
                   char* at = map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                   cudaSetDevice(1);
                   cudaDeviceEnablePeerAccess(0, 0);
                   return touch(at, 1);
                 }),
                 "no such access (cuMemSetAccess)");
}

TEST(TouchingTest, PoolMemoryIsOpenedByItsPool) {
  const auto body = [](bool open) {
    return [=] {
      void* at = nullptr;
      cudaMemPool_t pool = nullptr;
      cudaMallocAsync(&at, kUnit, nullptr);
      cudaDeviceGetDefaultMemPool(&pool, 0);
      const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, {1}},
                                        cudaMemAccessFlagsProtReadWrite};
      if (open) cudaMemPoolSetAccess(pool, &access, 1);
      cudaSetDevice(1);
      cudaDeviceEnablePeerAccess(0, 0);
      return touch(at, 1);
    };
  };

  EXPECT_EQ(verdict(body(true)), "allowed 0\n");
  expect_refused(verdict(body(false)), "cudaMemPoolSetAccess");
}

}  // namespace
