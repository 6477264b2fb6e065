// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/streams.h"

#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

#include <utility>

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::runtime::enter_on_device;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return enter_on_device<"cudaStreamCreateWithPriority">(
      [&] { return driver::StreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return enter_on_device<"cudaStreamCreateWithFlags">(
      [&] { return driver::StreamCreateWithPriority(stream, flags, 0); });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return enter_on_device<"cudaStreamCreate">(
      [&] { return driver::StreamCreateWithPriority(stream, 0, 0); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return enter_on_device<"cudaStreamDestroy">([&] { return driver::StreamDestroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return enter_on_device<"cudaStreamSynchronize">(
      [&] { return driver::StreamSynchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return enter_on_device<"cudaStreamQuery">([&] { return driver::StreamQuery(stream); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return enter_on_device<"cudaStreamGetPriority">(
      [&] { return driver::StreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return enter_on_device<"cudaStreamGetFlags">(
      [&] { return driver::StreamGetFlags(stream, flags); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return enter_on_device<"cudaStreamGetDevice">(
      [&] { return driver::StreamGetDevice(stream, device); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return enter_on_device<"cudaStreamGetId">([&] { return driver::StreamGetId(stream, id); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return enter_on_device<"cudaStreamWaitEvent">(
      [&] { return driver::StreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return enter_on_device<"cudaLaunchHostFunc">(
      [&] { return driver::LaunchHostFunc(stream, function, argument); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle,
                                  cudaStreamCallback_t callback,
                                  void* argument,
                                  unsigned flags) {
  return enter_on_device<"cudaStreamAddCallback">([&] {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return emu::call_on_stream<"cuStreamAddCallback">(
        handle, [&](emu::Machine& machine, emu::Stream& stream) {
          emu::Operation operation;
          operation.work = [=] {
            callback(handle, cudaSuccess, argument);
          };
          operation.kind = CU_GRAPH_NODE_TYPE_HOST;
          operation.name = "stream callback";
          operation.runs = emu::Operation::Runs::kProgram;
          machine.streams.submit(stream, std::move(operation));
          return CUDA_SUCCESS;
        });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return enter_on_device<"cudaEventCreateWithFlags">(
      [&] { return driver::EventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return enter_on_device<"cudaEventCreate">([&] { return driver::EventCreate(event, 0); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return enter_on_device<"cudaEventDestroy">([&] { return driver::EventDestroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return enter_on_device<"cudaEventRecord">([&] { return driver::EventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return enter_on_device<"cudaEventRecordWithFlags">(
      [&] { return driver::EventRecordWithFlags(event, stream, flags); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return enter_on_device<"cudaEventQuery">([&] { return driver::EventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return enter_on_device<"cudaEventSynchronize">([&] { return driver::EventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return enter_on_device<"cudaEventElapsedTime">(
      [&] { return driver::EventElapsedTime(milliseconds, start, end); });
}
}
