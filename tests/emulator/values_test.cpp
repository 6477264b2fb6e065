// SPDX-License-Identifier: Apache-2.0
// Stream memory operations, under every schedule.
#include "tests/emulator/schedules.h"

#include <thread>

namespace {

using namespace emulated;

class ValuesTest : public emulated::UnderSchedules {};

CUresult wait_for(cudaStream_t stream, const void* at, unsigned value, unsigned flags) {
  return CU(StreamWaitValue32, 8000)(stream, address(at), value, flags);
}

CUresult write(cudaStream_t stream, const void* at, unsigned value) {
  return CU(StreamWriteValue32, 8000)(stream, address(at), value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

TEST_F(ValuesTest, AWaitHoldsItsStreamUntilAnotherHasWritten) {
  under_all([] {
    const LockedBytes source(kBytes, 5);
    const LockedBytes target(kBytes, 0);
    const LockedBytes flag(kBytes, 0);
    const DeviceBytes block(kBytes);
    cudaStream_t producer = make_stream();
    cudaStream_t consumer = make_stream();
    EXPECT_EQ(wait_for(consumer, flag.at(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    copy(target.at(), block.at(), kBytes, consumer);
    copy(block.at(), source.at(), kBytes, producer);
    EXPECT_EQ(write(producer, flag.at(), 1), CUDA_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess);
    EXPECT_EQ(target.at()[0], 5);
  });
}

TEST_F(ValuesTest, AQueryBehindAnUnmetWaitReportsNotReadyIndefinitely) {
  under_all([] {
    const LockedBytes flag(kBytes, 0);
    cudaStream_t stream = make_stream();
    EXPECT_EQ(wait_for(stream, flag.at(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    flag.at()[0] = 1;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  });
}

TEST_F(ValuesTest, AnotherHostThreadMayWriteTheValue) {
  under_all(
      [] {
        const LockedBytes flag(kBytes, 0);
        cudaStream_t stream = make_stream();
        EXPECT_EQ(wait_for(stream, flag.at(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
        std::thread writer(
            [&] { __atomic_store_n(reinterpret_cast<int*>(flag.at()), 1, __ATOMIC_RELEASE); });
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        writer.join();
      },
      2);
}

TEST_F(ValuesTest, AnotherThreadMayUseCudaWhileOneWaits) {
  under_all(
      [] {
        const LockedBytes flag(kBytes, 0);
        cudaStream_t stream = make_stream();
        EXPECT_EQ(wait_for(stream, flag.at(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
        std::thread writer([&] {
          EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
          cudaStream_t other = make_stream();
          EXPECT_EQ(write(other, flag.at(), 1), CUDA_SUCCESS);
          EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
        });
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        writer.join();
      },
      2);
}

TEST_F(ValuesTest, EachConditionIsItsOwn) {
  under("eager", [] {
    const LockedBytes flag(kBytes, 0);
    cudaStream_t stream = make_stream();
    const auto met = [&](unsigned now, unsigned value, unsigned flags) {
      *reinterpret_cast<unsigned*>(flag.at()) = now;
      EXPECT_EQ(wait_for(stream, flag.at(), value, flags), CUDA_SUCCESS);
      const bool done = cudaStreamQuery(stream) == cudaSuccess;
      *reinterpret_cast<unsigned*>(flag.at()) = flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : value;
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      return done;
    };
    EXPECT_TRUE(met(7, 7, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_FALSE(met(8, 7, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_TRUE(met(8, 7, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_TRUE(met(1, 0xFFFFFFFFU, CU_STREAM_WAIT_VALUE_GEQ));  // cyclic
    EXPECT_FALSE(met(6, 7, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_TRUE(met(6, 2, CU_STREAM_WAIT_VALUE_AND));
    EXPECT_FALSE(met(4, 2, CU_STREAM_WAIT_VALUE_AND));
    EXPECT_TRUE(met(4, 2, CU_STREAM_WAIT_VALUE_NOR));
    EXPECT_FALSE(met(0xFFFFFFFDU, 2, CU_STREAM_WAIT_VALUE_NOR));
  });
}

TEST_F(ValuesTest, ABatchDoesAllInOrder) {
  under_all([] {
    const LockedBytes flags(kBytes, 0);
    CUstreamBatchMemOpParams batch[3] = {};
    batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, address(flags.at()), {3}, 0, 0};
    batch[1].waitValue = {
        CU_STREAM_MEM_OP_WAIT_VALUE_32, address(flags.at()), {3}, CU_STREAM_WAIT_VALUE_EQ, 0};
    batch[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[2].writeValue.address = address(flags.at() + 8);
    batch[2].writeValue.value64 = 1ULL << 40;
    cudaStream_t stream = make_stream();
    EXPECT_EQ(CU(StreamBatchMemOp, 11070)(stream, 3, batch, 0), CUDA_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(*reinterpret_cast<unsigned long long*>(flags.at() + 8), 1ULL << 40);
  });
}

TEST_F(ValuesTest, WhatIsNoValueIsRefused) {
  under("eager", [] {
    const DeviceBytes block(kBytes);
    unsigned pageable = 0;
    cudaStream_t stream = make_stream();
    EXPECT_EQ(wait_for(stream, block.at() + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(wait_for(stream, &pageable, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(wait_for(stream, block.at(), 0, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(wait_for(stream, block.at(), 0, CU_STREAM_WAIT_VALUE_FLUSH),
              CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(CU(StreamWaitValue64, 9000)(stream, address(block.at() + 4), 0, 0),
              CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
