// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs, after cuda.h's comments (CUDA 13.0).
#include "tests/conformance/claims.h"

#include <array>

class Capture : public conformance::Claim {
 protected:
  void begin(CUstream on, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    require(cu->StreamBeginCapture(on, mode), "cuStreamBeginCapture");
  }

  CUgraph end(CUstream on) {
    CUgraph graph = nullptr;
    require(cu->StreamEndCapture(on, &graph), "cuStreamEndCapture");
    return graph;
  }

  void replay(CUgraph graph, CUstream on, int times) {
    CUgraphExec ready = nullptr;
    require(cu->GraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiate");
    for (int i = 0; i < times; ++i)
      require(cu->GraphLaunch(ready, on), "cuGraphLaunch");
    require(cu->StreamSynchronize(on), "cuStreamSynchronize");
    require(cu->GraphExecDestroy(ready), "cuGraphExecDestroy");
  }
};

CONFORMANCE_BACKENDS(Capture);

TEST_P(Capture, NothingRunsWhileItIsCaptured) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(kChunk);
  ANSWERS(cu->MemsetD8(at, 1, kChunk), CUDA_SUCCESS);
  begin(on);
  ANSWERS(cu->MemsetD8Async(at, 2, kChunk, on), CUDA_SUCCESS);
  const CUgraph graph = end(on);
  HOLDS(byte_at(at) == 1);
  replay(graph, on, 1);
  HOLDS(byte_at(at) == 2);
  ANSWERS(cu->GraphDestroy(graph), CUDA_SUCCESS);
}

TEST_P(Capture, AReplayReadsTheBytesOfItsTime) {
  const CUstream on = stream();
  const CUdeviceptr from = allocated(kChunk);
  const CUdeviceptr to = allocated(kChunk);
  begin(on);
  ANSWERS(cu->MemcpyDtoDAsync(to, from, kChunk, on), CUDA_SUCCESS);
  const CUgraph graph = end(on);
  for (const unsigned char value : std::to_array<unsigned char>({5, 6})) {
    ANSWERS(cu->MemsetD8(from, value, kChunk), CUDA_SUCCESS);
    ANSWERS(cu->CtxSynchronize(), CUDA_SUCCESS);
    replay(graph, on, 1);
    HOLDS(byte_at(to + kChunk - 1) == value);
  }
  ANSWERS(cu->GraphDestroy(graph), CUDA_SUCCESS);
}

TEST_P(Capture, AStreamReportsItsCapture) {
  const CUstream on = stream();
  CUstreamCaptureStatus status{};
  ANSWERS(cu->StreamIsCapturing(on, &status), CUDA_SUCCESS);
  HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);
  begin(on);
  ANSWERS(cu->StreamIsCapturing(on, &status), CUDA_SUCCESS);
  HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ANSWERS(cu->GraphDestroy(end(on)), CUDA_SUCCESS);
}

TEST_P(Capture, TheLegacyStreamCannotBeCaptured) {
  ANSWERS(cu->StreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_P(Capture, OnlyACapturedStreamCanEndItsCapture) {
  CUgraph graph = nullptr;
  ANSWERS(cu->StreamEndCapture(stream(), &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_P(Capture, ACapturedStreamCannotBeWaitedFor) {
  const CUstream on = stream();
  begin(on);
  ANSWERS(cu->StreamSynchronize(on), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  ANSWERS(cu->StreamEndCapture(on, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  HOLDS(graph == nullptr);
}

TEST_P(Capture, AnInvalidCaptureTakesNothingMore) {
  const CUstream on = stream();
  const CUdeviceptr at = allocated(1);
  begin(on);
  ANSWERS(cu->StreamQuery(on), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ANSWERS(cu->MemsetD8Async(at, 1, 1, on), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  ANSWERS(cu->StreamEndCapture(on, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ANSWERS(cu->MemsetD8Async(at, 1, 1, on), CUDA_SUCCESS);
}

TEST_P(Capture, ACapturedEventCannotBeAskedByTheHost) {
  const CUstream on = stream();
  const CUevent made = event();
  begin(on);
  ANSWERS(cu->EventRecord(made, on), CUDA_SUCCESS);
  ANSWERS(cu->EventQuery(made), CUDA_ERROR_CAPTURED_EVENT);
  CUgraph graph = nullptr;
  cu->StreamEndCapture(on, &graph);
  if (graph != nullptr) cu->GraphDestroy(graph);
}

TEST_P(Capture, AnEventBringsAnotherStreamIn) {
  const CUstream on = stream();
  const CUstream side = stream();
  const CUevent fork = event();
  const CUevent join = event();
  const CUdeviceptr at = allocated(2);
  begin(on);
  ANSWERS(cu->EventRecord(fork, on), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  ANSWERS(cu->StreamIsCapturing(side, &status), CUDA_SUCCESS);
  HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ANSWERS(cu->MemsetD8Async(at, 4, 1, side), CUDA_SUCCESS);
  ANSWERS(cu->EventRecord(join, side), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(on, join, 0), CUDA_SUCCESS);
  ANSWERS(cu->MemcpyDtoDAsync(at + 1, at, 1, on), CUDA_SUCCESS);
  const CUgraph graph = end(on);
  std::size_t nodes = 0;
  ANSWERS(cu->GraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  HOLDS(nodes == 2);
  replay(graph, on, 1);
  HOLDS(byte_at(at + 1) == 4);
  ANSWERS(cu->GraphDestroy(graph), CUDA_SUCCESS);
}

TEST_P(Capture, AStreamThatDoesNotAreFetchedEndsIt) {
  const CUstream on = stream();
  const CUstream side = stream();
  const CUevent fork = event();
  const CUdeviceptr at = allocated(1);
  begin(on);
  ANSWERS(cu->EventRecord(fork, on), CUDA_SUCCESS);
  ANSWERS(cu->StreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8Async(at, 4, 1, side), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ANSWERS(cu->StreamEndCapture(on, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_P(Capture, AStrictCaptureForbidsAllocation) {
  const CUstream on = stream();
  begin(on, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAlloc(&at, kChunk), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  ANSWERS(cu->StreamEndCapture(on, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_P(Capture, ARelaxedThreadMayAllocate) {
  const CUstream on = stream();
  begin(on, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ANSWERS(cu->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  HOLDS(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  allocated(kChunk);
  ANSWERS(cu->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  ANSWERS(cu->GraphDestroy(end(on)), CUDA_SUCCESS);
}

TEST_P(Capture, AGraphRunsAsOftenAsItIsLaunched) {
  const CUstream on = stream();
  static int runs;
  runs = 0;
  begin(on);
  ANSWERS(cu->LaunchHostFunc(
              on, [](void*) { ++runs; }, nullptr),
          CUDA_SUCCESS);
  const CUgraph graph = end(on);
  HOLDS(runs == 0);
  replay(graph, on, 3);
  HOLDS(runs == 3);
  ANSWERS(cu->GraphDestroy(graph), CUDA_SUCCESS);
}
