// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

#include <thread>

extern "C" {
void __cudaRegisterFunction(
    void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
}

namespace {

class RefusalsTest : public emulated::Test {};

/// What a call writes to stderr.
template <typename Body>
std::string printed(Body body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(RefusalsTest, AFunctionThatIsNotEmulatedStatesItsName) {
  cudaError_t error = cudaSuccess;

  const std::string line = printed([&] { error = cudaGraphExecUpdate(nullptr, nullptr, nullptr); });

  EXPECT_EQ(error, cudaErrorNotSupported);
  EXPECT_EQ(line, "spillway-emulator: cudaGraphExecUpdate is not emulated\n");
  EXPECT_STREQ(cudaGetErrorString(error), "cudaGraphExecUpdate is not emulated");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
}

TEST_F(RefusalsTest, ADriverFunctionThatIsNotEmulatedStatesItsName) {
  CUresult error = CUDA_SUCCESS;

  const std::string line = printed([&] { error = CU(GraphClone, 10000)(nullptr, nullptr); });

  EXPECT_EQ(error, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(line, "spillway-emulator: cuGraphClone is not emulated\n");
}

TEST_F(RefusalsTest, AKernelLaunchIsAnErrorWithTheKernelsName) {
  static const char function = 0;
  __cudaRegisterFunction(
      nullptr, &function, nullptr, "_Z5scalePfi", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  cudaError_t error = cudaSuccess;

  const std::string line =
      printed([&] { error = cudaLaunchKernel(&function, dim3(1), dim3(1), nullptr, 0, nullptr); });

  EXPECT_EQ(error, cudaErrorNotSupported);
  EXPECT_EQ(line, "spillway-emulator: kernel scale(float*, int) is not emulated\n");
}

TEST_F(RefusalsTest, EveryDriverFunctionThatSpillwayCallsIsThere) {
#define SPILLWAY_CU(name, version) EXPECT_NE(CU(name, version), nullptr) << "cu" #name;
#include "allocator/driver/symbols.inc"
#undef SPILLWAY_CU
}

TEST_F(RefusalsTest, LookUpKnowsVersionsAndUnknownNames) {
  EXPECT_EQ(spillway_emulator_proc_address("cuMemCreate", 10010), nullptr);
  EXPECT_NE(spillway_emulator_proc_address("cuMemCreate", 13000), nullptr);
  EXPECT_EQ(spillway_emulator_proc_address("cuMemAlloc_v2", 13000),
            spillway_emulator_proc_address("cuMemAlloc", 13000));
  EXPECT_EQ(spillway_emulator_proc_address("cuNothing", 13000), nullptr);
}

TEST_F(RefusalsTest, EntryPointsSayWhetherTheyWereFound) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};

  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuMemMap", &function, 12000, 0, &found), cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, spillway_emulator_proc_address("cuMemMap", 12000));
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, 0, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

TEST_F(RefusalsTest, DriverCallsNeedAContextOnTheirThread) {
  CUresult without = CUDA_SUCCESS;
  CUresult with = CUDA_ERROR_UNKNOWN;
  CUresult popped_too_often = CUDA_SUCCESS;

  std::thread([&] {
    std::size_t free = 0;
    std::size_t total = 0;
    CUcontext context = nullptr;
    without = CU(MemGetInfo, 3020)(&free, &total);
    CU(DevicePrimaryCtxRetain, 7000)(&context, 0);
    CU(CtxPushCurrent, 4000)(context);
    with = CU(MemGetInfo, 3020)(&free, &total);
    CU(CtxPopCurrent, 4000)(nullptr);
    popped_too_often = CU(CtxPopCurrent, 4000)(nullptr);
  }).join();

  EXPECT_EQ(without, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(with, CUDA_SUCCESS);
  EXPECT_EQ(popped_too_often, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(RefusalsTest, RuntimeAndDriverShareTheCurrentDevice) {
  CUcontext second = nullptr;
  int device = -1;
  ASSERT_EQ(CU(DevicePrimaryCtxRetain, 7000)(&second, 1), CUDA_SUCCESS);

  ASSERT_EQ(CU(CtxPushCurrent, 4000)(second), CUDA_SUCCESS);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(CU(CtxPopCurrent, 4000)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
}

TEST_F(RefusalsTest, AnUnknownDeviceCannotBeMadeCurrent) {
  int device = -1;

  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
}

TEST_F(RefusalsTest, ErrorsHaveTheirNames) {
  const char* name = nullptr;

  EXPECT_EQ(CU(GetErrorName, 6000)(CUDA_ERROR_OUT_OF_MEMORY, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

}  // namespace
