// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

/// A function of the emulated driver: CU(MemCreate, 10020)(&handle, …).
#define CU(name, version) \
  reinterpret_cast<PFN_cu##name##_v##version>(spillway_emulator_proc_address("cu" #name, version))

namespace emulated {

inline constexpr std::size_t kMiB = 1U << 20U;
inline constexpr std::size_t kUnit = 2 * kMiB;  // the granularity
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kBytes = 64;  // a short copy

inline CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

inline CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
  return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

inline CUdeviceptr address(const void* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

/// A test with device 0 current and no reports of earlier tests.
class Test : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(spillway_emulator_error(), std::string());
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    spillway_emulator_clear_races();
  }
};

inline cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}

inline cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  return event;
}

/// `after` waits for everything that `before` has been given.
inline void order(cudaStream_t before, cudaStream_t after) {
  cudaEvent_t event = make_event();
  EXPECT_EQ(cudaEventRecord(event, before), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(after, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

/// Device memory for the length of a scope.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) { EXPECT_EQ(cudaMalloc(&at_, bytes), cudaSuccess); }

  ~DeviceBytes() { EXPECT_EQ(cudaFree(at_), cudaSuccess); }

  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] char* at() const { return static_cast<char*>(at_); }

 private:
  void* at_ = nullptr;
};

/// Page-locked memory for the length of a scope, filled with `value`.
class LockedBytes {
 public:
  LockedBytes(std::size_t bytes, char value) {
    EXPECT_EQ(cudaMallocHost(&at_, bytes), cudaSuccess);
    std::memset(at_, value, bytes);
  }

  ~LockedBytes() { EXPECT_EQ(cudaFreeHost(at_), cudaSuccess); }

  LockedBytes(const LockedBytes&) = delete;
  LockedBytes& operator=(const LockedBytes&) = delete;

  [[nodiscard]] char* at() const { return static_cast<char*>(at_); }

 private:
  void* at_ = nullptr;
};

inline void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), cudaSuccess);
}

inline std::vector<std::string> reports() {
  std::vector<std::string> all;
  while (const char* text = spillway_emulator_race(all.size()))
    all.emplace_back(text);
  return all;
}

inline std::uint64_t count(const char* what) {
  return spillway_emulator_count(what);
}

}  // namespace emulated
