// SPDX-License-Identifier: Apache-2.0
// Runs under both schedules: what a correct program sees must not depend on it.
#include "tests/emulator/emulated.h"

#include <thread>

namespace {

using namespace emulated;

class ScheduleTest : public emulated::Test {};

TEST_F(ScheduleTest, AWaitedCopyHasArrived) {
  const LockedBytes source(kPage, 5);
  const DeviceBytes block(kPage);
  cudaStream_t stream = make_stream();

  copy(block.at(), source.at(), kPage, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(block.at()[kPage - 1], 5);
}

TEST_F(ScheduleTest, AnEventOrdersTwoStreams) {
  const LockedBytes source(kPage, 5);
  const LockedBytes target(kPage, 0);
  const DeviceBytes block(kPage);
  cudaStream_t in = make_stream();
  cudaStream_t out = make_stream();

  copy(block.at(), source.at(), kPage, in);
  order(in, out);
  copy(target.at(), block.at(), kPage, out);
  ASSERT_EQ(cudaStreamSynchronize(out), cudaSuccess);

  EXPECT_EQ(target.at()[0], 5);
}

TEST_F(ScheduleTest, AWaitKeepsTheRecordThatItWasMadeWith) {
  const LockedBytes first(kPage, 1);
  const LockedBytes second(kPage, 2);
  const LockedBytes target(kPage, 0);
  const DeviceBytes block(kPage);
  cudaStream_t in = make_stream();
  cudaStream_t out = make_stream();
  cudaEvent_t event = make_event();

  copy(block.at(), first.at(), kPage, in);
  ASSERT_EQ(cudaEventRecord(event, in), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(out, event, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, out), cudaSuccess);  // would wait for itself if it counted
  copy(target.at(), block.at(), kPage, out);
  ASSERT_EQ(cudaStreamSynchronize(out), cudaSuccess);

  EXPECT_EQ(target.at()[0], 1);
}

TEST_F(ScheduleTest, AnEventThatWasNeverRecordedIsDoneAndOrdersNothing) {
  cudaEvent_t event = make_event();

  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(make_stream(), event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(ScheduleTest, TheDefaultStreamWaitsForBlockingStreams) {
  const LockedBytes source(kPage, 6);
  const LockedBytes target(kPage, 0);
  const DeviceBytes block(kPage);
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);

  copy(block.at(), source.at(), kPage, blocking);
  copy(target.at(), block.at(), kPage, nullptr);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);

  EXPECT_EQ(target.at()[0], 6);
}

TEST_F(ScheduleTest, BlockingStreamsWaitForTheDefaultStream) {
  const LockedBytes source(kPage, 6);
  const LockedBytes target(kPage, 0);
  const DeviceBytes block(kPage);
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);

  copy(block.at(), source.at(), kPage, nullptr);
  copy(target.at(), block.at(), kPage, blocking);
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);

  EXPECT_EQ(target.at()[0], 6);
}

TEST_F(ScheduleTest, PageableCopiesAreDoneWhenTheCallReturns) {
  std::vector<char> host(kPage, 8);
  const DeviceBytes block(kPage);
  cudaStream_t stream = make_stream();
  const auto syncs = count("host_syncs");

  copy(block.at(), host.data(), kPage, stream);

  EXPECT_EQ(block.at()[0], 8);
  EXPECT_EQ(count("host_syncs"), syncs + 1);
}

TEST_F(ScheduleTest, PollingEnds) {
  const LockedBytes source(kPage, 3);
  const DeviceBytes block(kPage);
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  copy(block.at(), source.at(), kPage, stream);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);

  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }

  EXPECT_EQ(block.at()[0], 3);
}

TEST_F(ScheduleTest, RowsAreCopiedWithTheirPitches) {
  const LockedBytes source(64, 1);
  const LockedBytes target(64, 0);
  cudaStream_t stream = make_stream();

  ASSERT_EQ(cudaMemcpy2DAsync(target.at(), 16, source.at(), 8, 4, 3, cudaMemcpyDefault, stream),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(target.at()[35], 1);
  EXPECT_EQ(target.at()[36], 0);
  EXPECT_EQ(target.at()[4], 0);
}

TEST_F(ScheduleTest, FillsRepeatTheirValue) {
  const DeviceBytes block(kPage);
  const auto at = reinterpret_cast<CUdeviceptr>(block.at());

  ASSERT_EQ(CU(MemsetD32Async, 3020)(at, 0x01020304U, 2, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemsetD8Async, 3020)(at + 8, 9, 4, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);

  EXPECT_EQ(std::string(block.at(), 12), std::string("\4\3\2\1\4\3\2\1\t\t\t\t"));
}

TEST_F(ScheduleTest, HostFunctionsRunInOrderAndMayNotCallCuda) {
  const LockedBytes source(kPage, 4);
  const DeviceBytes block(kPage);
  cudaStream_t stream = make_stream();

  struct Seen {
    const char* block;
    char value = 0;
    cudaError_t error = cudaSuccess;
  } seen{block.at()};

  copy(block.at(), source.at(), kPage, stream);
  const auto look = [](void* argument) {
    auto& is = *static_cast<Seen*>(argument);
    is.value = *is.block;
    is.error = cudaDeviceSynchronize();
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream, look, &seen), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(seen.value, 4);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
}

TEST_F(ScheduleTest, EachThreadHasADefaultStreamOfItsOwnThatIsOrderedWithTheLegacyOne) {
  const LockedBytes source(kPage, 6);
  const LockedBytes target(kPage, 0);
  const DeviceBytes block(kPage);
  unsigned long long here = 0;
  unsigned long long there = 0;
  ASSERT_EQ(cudaStreamGetId(cudaStreamPerThread, &here), cudaSuccess);
  std::thread([&] { cudaStreamGetId(cudaStreamPerThread, &there); }).join();

  copy(block.at(), source.at(), kPage, cudaStreamPerThread);
  copy(target.at(), block.at(), kPage, cudaStreamLegacy);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);

  EXPECT_EQ(target.at()[0], 6);
  EXPECT_NE(here, there);
  EXPECT_EQ(cudaStreamDestroy(cudaStreamPerThread), cudaErrorInvalidResourceHandle);
}

TEST_F(ScheduleTest, AFunctionForTheThreadsOwnStreamTakesZeroForIt) {
  const auto find = [](const char* name) {
    void* found = nullptr;
    EXPECT_EQ(CU(GetProcAddress, 12000)(
                  name, &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr),
              CUDA_SUCCESS);
    return found;
  };
  const auto id = CU(StreamGetId, 12000);
  const auto own_id = reinterpret_cast<PFN_cuStreamGetId_v12000>(find("cuStreamGetId"));
  unsigned long long own = 0;
  unsigned long long zero = 0;
  unsigned long long legacy = 0;

  EXPECT_EQ(id(CU_STREAM_PER_THREAD, &own), CUDA_SUCCESS);
  EXPECT_EQ(own_id(nullptr, &zero), CUDA_SUCCESS);
  EXPECT_EQ(id(nullptr, &legacy), CUDA_SUCCESS);
  EXPECT_EQ(own, zero);
  EXPECT_NE(own, legacy);
  EXPECT_EQ(own_id(CU_STREAM_LEGACY, &zero), CUDA_SUCCESS);
  EXPECT_EQ(zero, legacy);
  EXPECT_EQ(spillway_emulator_proc_address("cuStreamGetId_ptsz", 12000),
            reinterpret_cast<void*>(own_id));
  EXPECT_EQ(find("cuMemcpyHtoD"), spillway_emulator_proc_address("cuMemcpyHtoD_v2_ptds", 13000));
  EXPECT_NE(find("cuMemcpyHtoD"), spillway_emulator_proc_address("cuMemcpyHtoD_v2", 13000));
  EXPECT_EQ(find("cuMemCreate"), spillway_emulator_proc_address("cuMemCreate", 13000));
  EXPECT_NE(find("cuMemcpyBatchAsync"), nullptr);
}

TEST_F(ScheduleTest, AStreamReportsItsProperties) {
  cudaStream_t stream = nullptr;
  int priority = 1;
  unsigned flags = 9;
  int device = -1;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -100), cudaSuccess);

  EXPECT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
  EXPECT_EQ(cudaStreamGetFlags(stream, &flags), cudaSuccess);
  EXPECT_EQ(cudaStreamGetDevice(stream, &device), cudaSuccess);
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(flags, cudaStreamNonBlocking);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaStreamGetFlags(nullptr, &flags), cudaSuccess);
  EXPECT_EQ(flags, cudaStreamDefault);
}

TEST_F(ScheduleTest, DestroyedHandlesAreRefused) {
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);

  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
}

TEST_F(ScheduleTest, WorkOfADestroyedStreamIsDoneAtADeviceSynchronize) {
  const LockedBytes source(kPage, 7);
  const DeviceBytes block(kPage);
  cudaStream_t stream = make_stream();

  copy(block.at(), source.at(), kPage, stream);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  EXPECT_EQ(block.at()[0], 7);
}

TEST_F(ScheduleTest, ElapsedTimeNeedsTimedEventsAndNeverRunsBackwards) {
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  float milliseconds = -1;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);

  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, make_event()),
            cudaErrorInvalidResourceHandle);
}

TEST_F(ScheduleTest, TwoStreamsThatWaitForEachOtherInTurnEnd) {
  const LockedBytes source(kPage, 9);
  const DeviceBytes block(kPage);
  cudaStream_t one = make_stream();
  cudaStream_t other = make_stream();
  for (int i = 0; i < 20000; ++i) {
    copy(block.at(), source.at(), 1, one);
    order(one, other);
    copy(block.at(), source.at(), 1, other);
    order(other, one);
  }

  EXPECT_EQ(cudaStreamSynchronize(one), cudaSuccess);
  EXPECT_EQ(block.at()[0], 9);
}

TEST_F(ScheduleTest, EveryPlaceWhereTheHostWaitsIsCounted) {
  const DeviceBytes block(kPage);
  const LockedBytes locked(kPage, 0);
  cudaEvent_t event = make_event();
  ASSERT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, kPage), cudaSuccess);
  const auto before = count("host_syncs");

  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(locked.at(), block.at(), 1, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);

  EXPECT_EQ(count("host_syncs"), before + 5);
}

TEST_F(ScheduleTest, AsynchronousWorkAndQueriesAreNoHostWaits) {
  const DeviceBytes block(kPage);
  const LockedBytes locked(kPage, 0);
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  const auto before = count("host_syncs");

  copy(block.at(), locked.at(), kPage, stream);
  ASSERT_EQ(cudaMemsetAsync(block.at(), 0, kPage, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaSuccess);
  cudaEventQuery(event);

  EXPECT_EQ(count("host_syncs"), before);
}

}  // namespace
