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

/// A query of a stream; `answer(stream)` is stored in *out.
template <Literal kName, typename Value, typename Answer>
CUresult ask(CUstream handle, Value* out, Answer&& answer) {
  return call_on_stream<kName>(handle, [&](Machine& /*machine*/, const Stream& stream) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = answer(stream);
    return CUDA_SUCCESS;
  });
}

/// The event is recorded, or waited for, at each launch of the graph.
CUresult add_event_node(
    Machine& machine, Stream& stream, CUevent event, CUgraphNodeType kind, const char* name) {
  Operation operation;
  operation.kind = kind;
  operation.name = name;
  machine.captures.add(stream, std::move(operation))->event = event;
  return CUDA_SUCCESS;
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
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return call_on_stream<"cuStreamDestroy">(handle, [](Machine& machine, Stream& stream) {
    machine.streams.destroy(&stream);
    return CUDA_SUCCESS;
  });
}

CUresult CtxGetStreamPriorityRange(int* least, int* greatest) {
  return call_on_device<"cuCtxGetStreamPriorityRange">([&](Machine& /*machine*/, int /*device*/) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult StreamGetPriority(CUstream handle, int* priority) {
  return ask<"cuStreamGetPriority">(handle, priority, [](const Stream& of) { return of.priority; });
}

CUresult StreamGetFlags(CUstream handle, unsigned* flags) {
  return ask<"cuStreamGetFlags">(handle, flags, [](const Stream& of) {
    return of.blocking ? unsigned{CU_STREAM_DEFAULT} : unsigned{CU_STREAM_NON_BLOCKING};
  });
}

CUresult StreamGetDevice(CUstream handle, CUdevice* device) {
  return ask<"cuStreamGetDevice">(handle, device, [](const Stream& of) { return of.device; });
}

CUresult StreamGetId(CUstream handle, unsigned long long* id) {
  return ask<"cuStreamGetId">(
      handle, id, [](const Stream& of) { return static_cast<unsigned long long>(of.id); });
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
    if (!known_flags(flags, CU_EVENT_WAIT_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
    const Event* event = machine.streams.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (flags == CU_EVENT_WAIT_EXTERNAL && stream.capture != nullptr) {
      return add_event_node(
          machine, stream, event_handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, "event wait");
    }
    return machine.streams.wait(stream, *event);
  });
}

CUresult LaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  return call_on_stream<"cuLaunchHostFunc">(handle, [&](Machine& machine, Stream& stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.work = [function, argument] {
      function(argument);
    };
    operation.kind = CU_GRAPH_NODE_TYPE_HOST;
    operation.name = "host function";
    operation.runs = Operation::Runs::kProgram;
    machine.streams.submit(stream, std::move(operation));
    return machine.sticky.load();
  });
}

CUresult EventCreate(CUevent* event, unsigned flags) {
  return call_on_device<"cuEventCreate">([&](Machine& machine, int device) {
    constexpr unsigned kAllowed =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (event == nullptr || !known_flags(flags, kAllowed)) return CUDA_ERROR_INVALID_VALUE;
    const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    const bool interprocess = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (interprocess && timed) return CUDA_ERROR_INVALID_VALUE;
    Event* made = machine.streams.create_event(device, timed);
    made->interprocess = interprocess;
    *event = reinterpret_cast<CUevent>(made);
    return CUDA_SUCCESS;
  });
}

CUresult EventDestroy(CUevent handle) {
  return call_on_event<"cuEventDestroy">(handle, [](Machine& machine, Event& event) {
    machine.streams.destroy(&event);
    return CUDA_SUCCESS;
  });
}

CUresult EventRecord(CUevent event, CUstream stream) {
  return EventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult EventRecordWithFlags(CUevent event_handle, CUstream handle, unsigned flags) {
  return call_on_stream<"cuEventRecord">(handle, [&](Machine& machine, Stream& stream) {
    if (!known_flags(flags, CU_EVENT_RECORD_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
    Event* event = machine.streams.find(event_handle);
    if (event == nullptr || event->device != stream.device) return CUDA_ERROR_INVALID_HANDLE;
    if (flags == CU_EVENT_RECORD_EXTERNAL && stream.capture != nullptr) {
      return add_event_node(
          machine, stream, event_handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, "event record");
    }
    machine.streams.record(*event, stream);
    if (event->interprocess && stream.capture == nullptr) machine.streams.drain(stream);
    return machine.sticky.load();
  });
}

CUresult EventQuery(CUevent handle) {
  return call_on_event<"cuEventQuery">(handle, [](Machine& machine, Event& event) {
    const CUresult captured = machine.captures.check(event);
    if (captured != CUDA_SUCCESS) return captured;
    return machine.streams.query(event) ? machine.sticky.load() : CUDA_ERROR_NOT_READY;
  });
}

CUresult EventSynchronize(CUevent handle) {
  return call_on_event<"cuEventSynchronize">(handle, [](Machine& machine, Event& event) {
    const CUresult captured = machine.captures.check(event);
    if (captured != CUDA_SUCCESS) return captured;
    host_syncs().add();
    machine.streams.synchronize(event);
    return machine.sticky.load();
  });
}

CUresult EventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call_on_event<"cuEventElapsedTime">(start, [&](Machine& machine, Event& first) {
    const Event* last = machine.streams.find(end);
    if (last == nullptr || !first.timed || !last->timed) return CUDA_ERROR_INVALID_HANDLE;
    if (first.capture != nullptr || last->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    if (first.stream == nullptr || last->stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return machine.streams.elapsed(first, *last, milliseconds);
  });
}

}  // namespace spillway::emulator::driver
