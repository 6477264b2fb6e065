// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/streams.h"

#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

template <Literal kName, typename Body>
CUresult call_on_event(CUevent handle, Body&& body) {
  return call<kName>([&](Machine& machine) {
    Event* event = machine.streams.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return static_cast<CUresult>(body(machine, *event));
  });
}

bool known_flags(unsigned flags, unsigned allowed) {
  return (flags & ~allowed) == 0;
}

}  // namespace

CUresult StreamCreate(CUstream* stream, unsigned flags) {
  return StreamCreateWithPriority(stream, flags, 0);
}

CUresult StreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call_on_device<"cuStreamCreateWithPriority">([&](Machine& machine, int device) {
    if (stream == nullptr || !known_flags(flags, CU_STREAM_NON_BLOCKING)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *stream = reinterpret_cast<CUstream>(machine.streams.create(device, blocking, priority));
    return CUDA_SUCCESS;
  });
}

CUresult StreamDestroy(CUstream handle) {
  return call<"cuStreamDestroy">([&](Machine& machine) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_HANDLE;
    Stream* stream = machine.streams.find(handle, kNoDevice);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    machine.streams.destroy(stream);
    return CUDA_SUCCESS;
  });
}

CUresult StreamSynchronize(CUstream handle) {
  return call_on_stream<"cuStreamSynchronize">(handle, [](Machine& machine, Stream& stream) {
    host_syncs().add();
    machine.streams.synchronize(stream);
    return machine.sticky.load();
  });
}

CUresult StreamQuery(CUstream handle) {
  return call_on_stream<"cuStreamQuery">(handle, [](Machine& machine, Stream& stream) {
    return machine.streams.query(stream) ? machine.sticky.load() : CUDA_ERROR_NOT_READY;
  });
}

CUresult StreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  return call_on_stream<"cuStreamWaitEvent">(handle, [&](Machine& machine, Stream& stream) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const Event* event = machine.streams.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    machine.streams.wait(stream, *event);
    return CUDA_SUCCESS;
  });
}

CUresult StreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call_on_stream<"cuStreamIsCapturing">(handle, [&](Machine& /*machine*/, Stream& /*on*/) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult LaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  return call_on_stream<"cuLaunchHostFunc">(handle, [&](Machine& machine, Stream& stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.work = [function, argument] {
      function(argument);
    };
    operation.calls_program = true;
    machine.streams.submit(stream, std::move(operation));
    return machine.sticky.load();
  });
}

CUresult EventCreate(CUevent* event, unsigned flags) {
  return call_on_device<"cuEventCreate">([&](Machine& machine, int device) {
    constexpr unsigned kAllowed = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) return refuse("an event for several processes");
    if (!known_flags(flags, kAllowed)) return CUDA_ERROR_INVALID_VALUE;
    const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *event = reinterpret_cast<CUevent>(machine.streams.create_event(device, timed));
    return CUDA_SUCCESS;
  });
}

CUresult EventDestroy(CUevent handle) {
  return call_on_event<"cuEventDestroy">(handle, [](Machine& machine, Event& event) {
    machine.streams.destroy(&event);
    return CUDA_SUCCESS;
  });
}

CUresult EventRecord(CUevent event_handle, CUstream handle) {
  return call_on_stream<"cuEventRecord">(handle, [&](Machine& machine, Stream& stream) {
    Event* event = machine.streams.find(event_handle);
    if (event == nullptr || event->device != stream.device) return CUDA_ERROR_INVALID_HANDLE;
    machine.streams.record(*event, stream);
    return machine.sticky.load();
  });
}

CUresult EventQuery(CUevent handle) {
  return call_on_event<"cuEventQuery">(handle, [](Machine& machine, Event& event) {
    return machine.streams.query(event) ? machine.sticky.load() : CUDA_ERROR_NOT_READY;
  });
}

CUresult EventSynchronize(CUevent handle) {
  return call_on_event<"cuEventSynchronize">(handle, [](Machine& machine, Event& event) {
    host_syncs().add();
    machine.streams.synchronize(event);
    return machine.sticky.load();
  });
}

CUresult EventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call_on_event<"cuEventElapsedTime">(start, [&](Machine& machine, Event& first) {
    const Event* last = machine.streams.find(end);
    if (last == nullptr || !first.timed || !last->timed) return CUDA_ERROR_INVALID_HANDLE;
    if (first.stream == nullptr || last->stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (first.stream->done < first.point || last->stream->done < last->point) {
      return CUDA_ERROR_NOT_READY;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(last->time - first.time).count();
    return CUDA_SUCCESS;
  });
}

}  // namespace spillway::emulator::driver
