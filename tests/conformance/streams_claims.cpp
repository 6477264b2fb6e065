// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions and what orders them, after cuda.h's comments (CUDA 13.0) and
// the notes on stream synchronization of its reference manual.
#include "tests/conformance/claims.h"

CONFORMANCE(Streams);

TEST_P(Streams, AnIdleStreamIsDone) {
  ANSWERS(cu->StreamQuery(stream()), CUDA_SUCCESS);
}

TEST_P(Streams, AnEventThatWasNeverRecordedIsDone) {
  ANSWERS(cu->EventQuery(event()), CUDA_SUCCESS);
  ANSWERS(cu->EventSynchronize(event()), CUDA_SUCCESS);
}

TEST_P(Streams, TimeIsMeasuredBetweenTimedEventsOnly) {
  const CUevent first = event();
  const CUevent last = event();
  const CUstream on = stream();
  ANSWERS(cu->EventRecord(first, on), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(last, on), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  float milliseconds = 0;
  ANSWERS(cu->EventElapsedTime(&milliseconds, first, last), CUDA_ERROR_INVALID_HANDLE);
}

TEST_P(Streams, TimeIsMeasuredBetweenRecordedEventsOnly) {
  float milliseconds = 0;
  ANSWERS(cu->EventElapsedTime(&milliseconds, event(0), event(0)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_P(Streams, TimeIsNeverNegativeOnOneStream) {
  const CUevent first = event(0);
  const CUevent last = event(0);
  const CUstream on = stream();
  ANSWERS(cu->EventRecord(first, on), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8Async(allocated(kChunk), 1, kChunk, on), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(last, on), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  float milliseconds = -1;
  ANSWERS(cu->EventElapsedTime(&milliseconds, first, last), CUDA_SUCCESS);
  HOLDS(milliseconds >= 0);
}

TEST_P(Streams, OneStreamKeepsItsOrder) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* host = locked(kChunk, 3);
  ANSWERS(cu->MemcpyHtoDAsync(at, host, kChunk, on), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8Async(at, 4, 1, on), CUDA_SUCCESS);
  unsigned char* back = locked(kChunk, 0);
  ANSWERS(cu->MemcpyDtoHAsync(back, at, kChunk, on), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  HOLDS(back[0] == 4 && back[1] == 3 && back[kChunk - 1] == 3);
}

TEST_P(Streams, AnEventOrdersTwoStreams) {
  const CUstream producer = stream();
  const CUstream consumer = stream();
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(kChunk, 0);
  const CUevent made = event();
  ANSWERS(cu->MemcpyHtoDAsync(at, locked(kChunk, 6), kChunk, producer), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(made, producer), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(consumer, made, 0), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at, kChunk, consumer), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(consumer), CUDA_SUCCESS);
  HOLDS(back[kChunk - 1] == 6);
}

TEST_P(Streams, AWaitTakesTheLatestRecordBeforeIt) {
  const CUstream producer = stream();
  const CUstream consumer = stream();
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(1, 0);
  const CUevent made = event();
  ANSWERS(cu->EventRecord(made, producer), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyHtoDAsync(at, locked(kChunk, 8), kChunk, producer), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(made, producer), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(consumer, made, 0), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at + kChunk - 1, 1, consumer), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(consumer), CUDA_SUCCESS);
  HOLDS(back[0] == 8);
}

TEST_P(Streams, AWaitOutlivesItsEvent) {
  const CUstream producer = stream();
  const CUstream consumer = stream();
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(1, 0);
  CUevent made = nullptr;
  ANSWERS(cu->EventCreate(&made, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyHtoDAsync(at, locked(kChunk, 2), kChunk, producer), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(made, producer), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(consumer, made, 0), CUDA_SUCCESS);
  ANSWERS(cu->EventDestroy(made), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at + kChunk - 1, 1, consumer), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(consumer), CUDA_SUCCESS);
  HOLDS(back[0] == 2);
}

TEST_P(Streams, TheLegacyStreamWaitsForBlockingStreams) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  const CUdeviceptr at = allocated(kChunk);
  ANSWERS(cu->MemcpyHtoDAsync(at, locked(kChunk, 5), kChunk, blocking), CUDA_SUCCESS);
  HOLDS(byte_at(at + kChunk - 1) == 5);
}

TEST_P(Streams, BlockingStreamsWaitForTheLegacyStream) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(1, 0);
  ANSWERS(cu->MemcpyHtoDAsync(at, locked(kChunk, 5), kChunk, nullptr), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at + kChunk - 1, 1, blocking), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(blocking), CUDA_SUCCESS);
  HOLDS(back[0] == 5);
}

TEST_P(Streams, AThreadsOwnDefaultStreamWorks) {
  const CUdeviceptr at = allocated(1);
  unsigned char* back = locked(1, 0);
  ANSWERS(cu->MemsetD8Async(at, 7, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  HOLDS(back[0] == 7);
}

TEST_P(Streams, APageableSourceCanBeOverwrittenAtOnce) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(kChunk);
  std::vector<unsigned char> from(kChunk, 1);
  ANSWERS(cu->MemcpyHtoDAsync(at, from.data(), kChunk, on), CUDA_SUCCESS);
  std::fill(from.begin(), from.end(), 2);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  HOLDS(byte_at(at + kChunk - 1) == 1);
}

TEST_P(Streams, APageableTargetIsThereWhenTheCallReturns) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(kChunk);
  std::vector<unsigned char> back(kChunk, 0);
  ANSWERS(cu->MemsetD8Async(at, 4, kChunk, on), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back.data(), at, kChunk, on), CUDA_SUCCESS);
  HOLDS(back[kChunk - 1] == 4);
}

TEST_P(Streams, AHostFunctionRunsAfterWhatIsBeforeIt) {
  struct Seen {
    unsigned char* from;
    int value;
  };

  const CUstream on = stream();
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(1, 0);
  Seen seen{back, -1};
  ANSWERS(cu->MemsetD8Async(at, 9, kChunk, on), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at, 1, on), CUDA_SUCCESS);
  const CUhostFn look = [](void* argument) {
    auto* into = static_cast<Seen*>(argument);
    into->value = into->from[0];
  };
  ANSWERS(cu->LaunchHostFunc(on, look, &seen), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  HOLDS(seen.value == 9);
}

TEST_P(Streams, AHostFunctionMustNotCallCuda) {
  struct Call {
    const conformance::Driver* cu;
    CUresult result;
  };

  Call call{cu, CUDA_SUCCESS};
  const CUstream on = stream();
  const CUhostFn try_it = [](void* argument) {
    auto* into = static_cast<Call*>(argument);
    CUdeviceptr at = 0;
    into->result = into->cu->MemAlloc(&at, 1);
  };
  ANSWERS(cu->LaunchHostFunc(on, try_it, &call), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  ANSWERS(call.result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_P(Streams, AnUnknownFlagIsRefused) {
  CUstream made = nullptr;
  CUevent event_made = nullptr;
  ANSWERS(cu->StreamCreate(&made, 64), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->EventCreate(&event_made, 64), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Streams, APriorityOutOfRangeIsBroughtIntoIt) {
  int least = 0;
  int greatest = 0;
  ANSWERS(cu->CtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  HOLDS(greatest <= least);
  CUstream made = nullptr;
  int priority = 1;
  ANSWERS(cu->StreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, greatest - 100),
          CUDA_SUCCESS);
  ANSWERS(cu->StreamGetPriority(made, &priority), CUDA_SUCCESS);
  HOLDS(priority == greatest);
  ANSWERS(cu->StreamDestroy(made), CUDA_SUCCESS);
}

TEST_P(Streams, AStreamWritesAValue) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(4);
  ANSWERS(cu->StreamWriteValue32(on, at, 0x2A, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(on), CUDA_SUCCESS);
  HOLDS(byte_at(at) == 0x2A);
}

TEST_P(Streams, AStreamWaitsForAValueOfAnotherStream) {
  const CUstream producer = stream();
  const CUstream consumer = stream();
  const CUdeviceptr flag = allocated(4);
  const CUdeviceptr at = allocated(kChunk);
  unsigned char* back = locked(1, 0);
  ANSWERS(cu->MemsetD8(flag, 0, 4), CUDA_SUCCESS);
  ANSWERS(cu->CtxSynchronize(), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitValue32(consumer, flag, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoHAsync(back, at, 1, consumer), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8Async(at, 3, kChunk, producer), CUDA_SUCCESS);
  ANSWERS(cu->StreamWriteValue32(producer, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ANSWERS(cu->StreamSynchronize(consumer), CUDA_SUCCESS);
  HOLDS(back[0] == 3);
}
