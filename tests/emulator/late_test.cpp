// SPDX-License-Identifier: Apache-2.0
// The late schedule: what goes wrong without a wait goes wrong every time.
#include "tests/emulator/emulated.h"

#include <sys/mman.h>

namespace {

using namespace emulated;

constexpr std::size_t kLateBytes = 4096;

class LateTest : public emulated::Test {};

TEST_F(LateTest, ACopyWithoutAWaitHasNotRun) {
  const LockedBytes source(kLateBytes, 5);
  const LockedBytes target(kLateBytes, 0);
  const DeviceBytes block(kLateBytes);
  cudaStream_t stream = make_stream();

  copy(block.at(), source.at(), kLateBytes, stream);
  copy(target.at(), block.at(), kLateBytes, stream);

  EXPECT_EQ(target.at()[0], 0);
}

TEST_F(LateTest, AMissingWaitBetweenStreamsGivesOldBytes) {
  const LockedBytes source(kLateBytes, 5);
  const LockedBytes target(kLateBytes, 1);
  const DeviceBytes block(kLateBytes);
  ASSERT_EQ(cudaMemset(block.at(), 0, kLateBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaStream_t in = make_stream();
  cudaStream_t out = make_stream();

  copy(block.at(), source.at(), kLateBytes, in);
  copy(target.at(), block.at(), kLateBytes, out);
  ASSERT_EQ(cudaStreamSynchronize(out), cudaSuccess);

  EXPECT_EQ(target.at()[0], 0);
}

TEST_F(LateTest, ABlockingCopyOnTheThreadsOwnStreamWaitsForNoOther) {
  const LockedBytes source(kLateBytes, 5);
  const LockedBytes target(kLateBytes, 1);
  const DeviceBytes block(kLateBytes);
  ASSERT_EQ(cudaMemset(block.at(), 0, kLateBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto at = reinterpret_cast<CUdeviceptr>(block.at());
  const auto find = [](const char* name) {
    return reinterpret_cast<PFN_cuMemcpyDtoH_v3020>(spillway_emulator_proc_address(name, 13000));
  };
  cudaStream_t stream = nullptr;  // the legacy one waits for it
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);

  copy(block.at(), source.at(), kLateBytes, stream);
  EXPECT_EQ(find("cuMemcpyDtoH_v2_ptds")(target.at(), at, kLateBytes), CUDA_SUCCESS);
  EXPECT_EQ(target.at()[0], 0);
  EXPECT_EQ(find("cuMemcpyDtoH_v2")(target.at(), at, kLateBytes), CUDA_SUCCESS);
  EXPECT_EQ(target.at()[0], 5);
}

TEST_F(LateTest, AHostSlotThatIsReusedTooEarlyGivesTheNewBytes) {
  const LockedBytes slot(kLateBytes, 1);
  const DeviceBytes block(kLateBytes);
  cudaStream_t in = make_stream();

  copy(block.at(), slot.at(), kLateBytes, in);
  std::memset(slot.at(), 2, kLateBytes);
  ASSERT_EQ(cudaStreamSynchronize(in), cudaSuccess);

  EXPECT_EQ(block.at()[0], 2);
}

TEST_F(LateTest, AQueryIsTrueOnlyTheThirdTime) {
  const LockedBytes source(kLateBytes, 5);
  const DeviceBytes block(kLateBytes);
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  copy(block.at(), source.at(), kLateBytes, stream);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);

  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(LateTest, DrainRunsWhatTheNextOperationMustComeAfterAndNoMore) {
  const LockedBytes source(kLateBytes, 5);
  const DeviceBytes behind(kLateBytes);
  const DeviceBytes beside(kLateBytes);
  cudaStream_t stream = make_stream();
  cudaStream_t waited = make_stream();
  cudaStream_t other = make_stream();
  copy(behind.at(), source.at(), kLateBytes, waited);
  emulated::order(waited, stream);
  copy(beside.at(), source.at(), kLateBytes, other);

  spillway_emulator_drain(stream);

  EXPECT_EQ(behind.at()[0], 5);
  EXPECT_EQ(beside.at()[0], 0);
}

TEST_F(LateTest, AHostFunctionRunsAtOnceSoThatItsProgramMayWaitForIt) {
  bool ran = false;

  ASSERT_EQ(cudaLaunchHostFunc(
                make_stream(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran),
            cudaSuccess);

  EXPECT_TRUE(ran);
}

TEST_F(LateTest, MemoryThatIsFreedInOrderIsReleasedWhenTheStreamGetsThere) {
  cudaStream_t stream = make_stream();
  void* at = nullptr;
  ASSERT_EQ(cudaMallocAsync(&at, kLateBytes, stream), cudaSuccess);
  const auto used = spillway_emulator_used(0);

  ASSERT_EQ(cudaFreeAsync(at, stream), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(at, stream), cudaErrorInvalidValue);
  EXPECT_EQ(spillway_emulator_used(0), used);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_LT(spillway_emulator_used(0), used);
}

// Last: the error stays for the rest of the process, as on a GPU. Each case is a process under
// ctest.
TEST_F(LateTest, ZACopyOnMemoryThatIsGoneWhenItRunsIsAnErrorThatStays) {
  void* memory =
      mmap(nullptr, kLateBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(cudaHostRegister(memory, kLateBytes, 0), cudaSuccess);
  void* block = nullptr;
  ASSERT_EQ(cudaMalloc(&block, kLateBytes), cudaSuccess);
  cudaStream_t stream = make_stream();
  copy(block, memory, kLateBytes, stream);
  ASSERT_EQ(cudaHostUnregister(memory), cudaSuccess);
  munmap(memory, kLateBytes);

  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&block, kLateBytes), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
}

}  // namespace
