// SPDX-License-Identifier: Apache-2.0
// What a capture forbids, to which streams and threads, and the state of the capture afterwards.
#include "tests/emulator/emulated.h"

#include <functional>
#include <thread>

namespace {

using namespace emulated;

class CaptureRulesTest : public emulated::Test {
 protected:
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }

  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    EXPECT_EQ(graph == nullptr, error != cudaSuccess);
    return error;
  }

  cudaStream_t stream_ = make_stream();
};

cudaError_t allocate() {
  void* at = nullptr;
  return cudaMalloc(&at, kBytes);
}

template <typename Body>
void in_thread(Body body) {
  std::thread(body).join();
}

TEST_F(CaptureRulesTest, AForbiddenCallInvalidatesTheCaptureForAllCallsThatFollow) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStreamCaptureStatus status{};
  begin();

  EXPECT_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaMemcpyAsync(block.at(), source.at(), 1, cudaMemcpyDefault, stream_),
            cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(allocate(), cudaSuccess);
}

TEST_F(CaptureRulesTest, AGlobalCaptureForbidsUnsafeCallsOfEveryThread) {
  begin();
  in_thread([] { EXPECT_EQ(allocate(), cudaErrorStreamCaptureUnsupported); });
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, AThreadLocalCaptureForbidsThemToItsOwnThreadAlone) {
  begin(cudaStreamCaptureModeThreadLocal);
  in_thread([] { EXPECT_EQ(allocate(), cudaSuccess); });
  EXPECT_EQ(end(), cudaSuccess);
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, ARelaxedCaptureAllowsThem) {
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(allocate(), cudaSuccess);
  in_thread([] { EXPECT_EQ(allocate(), cudaSuccess); });
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureRulesTest, ARelaxedThreadMayMakeThemDuringAGlobalCapture) {
  auto mode = cudaStreamCaptureModeRelaxed;
  begin();
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(allocate(), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureRulesTest, AThreadLocalThreadIsNotHeldByAnothersGlobalCapture) {
  begin();
  in_thread([] {
    auto mode = cudaStreamCaptureModeThreadLocal;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(allocate(), cudaSuccess);
  });
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureRulesTest, EveryUnsafeCallIsForbidden) {
  void* at = nullptr;
  std::vector<char> pages(kBytes);
  const DeviceBytes block(kBytes);
  const LockedBytes locked(kBytes, 0);
  cudaStream_t other = make_stream();
  cudaEvent_t event = make_event();
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = emulated::memory_of(0);
  CUdeviceptr reserved = 0;
  const std::vector<std::function<int()>> calls = {
      [&] { return cudaMalloc(&at, kBytes); },
      [&] { return cudaFree(block.at()); },
      [&] { return cudaMallocHost(&at, kBytes); },
      [&] { return cudaFreeHost(locked.at()); },
      [&] { return cudaHostRegister(pages.data(), kBytes, 0); },
      [&] { return CU(MemCreate, 10020)(&handle, emulated::kUnit, &properties, 0); },
      [&] { return CU(MemAddressReserve, 10020)(&reserved, emulated::kUnit, 0, 0, 0); },
      [&] { return cudaMemcpy(block.at(), locked.at(), kBytes, cudaMemcpyDefault); },
      [&] { return cudaMemset(block.at(), 0, kBytes); },
      [&] { return cudaStreamSynchronize(other); },
      [&] { return cudaStreamQuery(other); },
      [&] { return cudaEventSynchronize(event); },
      [&] { return cudaEventQuery(event); },
      [&] { return cudaDeviceSynchronize(); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    begin();
    EXPECT_EQ(calls[i](), cudaErrorStreamCaptureUnsupported) << "call " << i;
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated) << "call " << i;
  }
}

TEST_F(CaptureRulesTest, TheDriverForbidsEachUnsafeFunctionWhateverItsArguments) {
  // What captures forbid comes before what the arguments are, but where they cannot be read at all.
  static constexpr CUDA_MEMCPY2D kNoBytes{};

  struct Call {
    const char* name;
    std::function<CUresult()> make;
  };

#define UNSAFE(name, version, ...)           \
  Call {                                     \
#name, [] {                              \
      return CU(name, version)(__VA_ARGS__); \
    }                                        \
  }
  const std::vector<Call> calls = {
      UNSAFE(MemAlloc, 3020, nullptr, 0),
      UNSAFE(MemFree, 3020, 0),
      UNSAFE(MemHostAlloc, 2020, nullptr, 0, 0),
      UNSAFE(MemFreeHost, 2000, nullptr),
      UNSAFE(MemHostRegister, 6050, nullptr, 0, 0),
      UNSAFE(MemHostUnregister, 4000, nullptr),
      UNSAFE(MemAddressReserve, 10020, nullptr, 0, 0, 0, 0),
      UNSAFE(MemAddressFree, 10020, 0, 0),
      UNSAFE(MemCreate, 10020, nullptr, 0, nullptr, 0),
      UNSAFE(MemRelease, 10020, 0),
      UNSAFE(MemMap, 10020, 0, 0, 0, 0, 0),
      UNSAFE(MemUnmap, 10020, 0, 0),
      UNSAFE(MemSetAccess, 10020, 0, 0, nullptr, 0),
      UNSAFE(Memcpy, 4000, 0, 0, 0),
      UNSAFE(Memcpy2D, 3020, &kNoBytes),
      UNSAFE(Memcpy2DUnaligned, 3020, &kNoBytes),
      UNSAFE(MemcpyPeer, 4000, 0, nullptr, 0, nullptr, 0),
      UNSAFE(MemcpyHtoD, 3020, 0, nullptr, 0),
      UNSAFE(MemcpyDtoH, 3020, nullptr, 0, 0),
      UNSAFE(MemcpyDtoD, 3020, 0, 0, 0),
      UNSAFE(MemsetD8, 3020, 0, 0, 0),
      UNSAFE(MemsetD16, 3020, 0, 0, 0),
      UNSAFE(MemsetD32, 3020, 0, 0, 0),
      UNSAFE(MemsetD2D8, 3020, 0, 0, 0, 0, 0),
      UNSAFE(MemsetD2D16, 3020, 0, 0, 0, 0, 0),
      UNSAFE(MemsetD2D32, 3020, 0, 0, 0, 0, 0),
      UNSAFE(StreamSynchronize, 2000, nullptr),
      UNSAFE(StreamQuery, 2000, nullptr),
      UNSAFE(CtxSynchronize, 2000),
      UNSAFE(IpcOpenMemHandle, 11000, nullptr, {}, 0),
      UNSAFE(IpcCloseMemHandle, 4010, 0),
  };
#undef UNSAFE
  for (const Call& call : calls) {
    begin();
    EXPECT_EQ(call.make(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << call.name;
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated) << call.name;
  }
}

TEST_F(CaptureRulesTest, ACapturingStreamCannotBeWaitedForEvenWhenRelaxed) {
  for (const auto& wait : {std::function<cudaError_t()>([&] { return cudaStreamQuery(stream_); }),
                           {[&] {
                             return cudaStreamSynchronize(stream_);
                           }},
                           {[&] {
                             return cudaDeviceSynchronize();
                           }}}) {
    begin(cudaStreamCaptureModeRelaxed);
    EXPECT_EQ(wait(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CaptureRulesTest, ACapturedEventCannotBeAskedNorWaitedForByTheHost) {
  cudaEvent_t event = make_event();
  for (const auto& ask : {cudaEventQuery, cudaEventSynchronize}) {
    begin(cudaStreamCaptureModeRelaxed);
    ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
    EXPECT_EQ(ask(event), cudaErrorCapturedEvent);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(ask(event), cudaErrorCapturedEvent);
  }
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);  // a new record outside a capture
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(CaptureRulesTest, AForkThatIsNotJoinedIsAnError) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t side = make_stream();
  begin();
  order(stream_, side);
  copy(block.at(), source.at(), kBytes, side);

  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);

  copy(block.at(), source.at(), kBytes, side);  // the side stream is free again
  EXPECT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  EXPECT_EQ(block.at()[0], 5);
}

TEST_F(CaptureRulesTest, AWaitForWorkOutsideTheCaptureIsAnError) {
  cudaStream_t other = make_stream();
  cudaEvent_t event = make_event();
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  begin();

  EXPECT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, TwoCapturesCannotMerge) {
  cudaStream_t other = make_stream();
  cudaEvent_t event = make_event();
  cudaGraph_t graph = nullptr;
  begin();
  ASSERT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);

  EXPECT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, TheDefaultStreamIsForbiddenWhileABlockingStreamCaptures) {
  cudaStream_t blocking = nullptr;
  cudaGraph_t graph = nullptr;
  const DeviceBytes block(kBytes);
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);

  EXPECT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, TheDefaultStreamMayBeUsedWhileANonBlockingStreamCaptures) {
  const DeviceBytes block(kBytes);
  begin();
  EXPECT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureRulesTest, CapturesBeginAndEndOnlyWhereTheyMay) {
  cudaGraph_t graph = nullptr;
  cudaStream_t side = make_stream();
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  in_thread(
      [&] { EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureWrongThread); });
  order(stream_, side);
  EXPECT_EQ(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, AnOperatorThatRunsInsteadOfBecomingANodeInvalidatesTheCapture) {
  begin();
  spillway_emulator_drain(stream_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, ANodeThatIsNotEmulatedIsRefusedByName) {
  void* at = nullptr;
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMallocAsync(&at, kBytes, stream_), cudaErrorNotSupported);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()),
               "cuMemAllocAsync in a capture is not emulated");
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
