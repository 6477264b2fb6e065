// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "emulator/device/allocations.h"
#include "emulator/device/capacity.h"
#include "emulator/device/captures.h"
#include "emulator/device/clock.h"
#include "emulator/device/counts.h"
#include "emulator/device/faults.h"
#include "emulator/device/graphs.h"
#include "emulator/device/host_memory.h"
#include "emulator/device/memory_file.h"
#include "emulator/device/ordering.h"
#include "emulator/device/peers.h"
#include "emulator/device/settings.h"
#include "emulator/device/streams.h"
#include "emulator/device/thread_state.h"
#include "emulator/device/virtual_memory.h"

#include <cuda.h>

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <unordered_map>

namespace spillway::emulator {

/// The whole emulated machine under one lock. Created on first use and never destroyed, because
/// programs call CUDA while the process ends. In a forked child it reports that CUDA is not
/// initialized.
struct Machine {
  explicit Machine(const Settings& with);

  const Settings settings;
  Mutex mutex;
  std::atomic<bool> driver_started{false};  // cuInit, or any runtime function
  /// After an illegal address or a similar error: every later call returns it.
  std::atomic<CUresult> sticky{CUDA_SUCCESS};
  /// Returns `error`, and stores it if CUDA defines it as sticky.
  CUresult fail(CUresult error);
  std::array<std::atomic<bool>, 8> active{};  // devices whose primary context exists

  OrderChecker checker;
  Ordering ordering;
  Capacity capacity;
  Peers peers;
  std::deque<MemoryFile> files;  // by device
  Allocations allocations;
  VirtualMemory virtual_memory;
  HostMemory host;
  // writes of values are ordered after these
  std::unordered_map<std::uintptr_t, VectorClock> values;
  Graphs graphs;
  Captures captures;
  Clock clock;
  Streams streams;
};

/// The machine; null if the settings are invalid or this is a forked child.
Machine* machine_if_ready();

/// The body of an API function: counts the call and runs `body(Machine&)` under the lock.
/// Errors: CUDA_ERROR_NOT_INITIALIZED, _NOT_PERMITTED within a host function, the sticky error, an
/// injected fault, calls that captures forbid (capture_rules.h).
template <Literal kName, typename Body>
CUresult call(Body&& body) {
  counter<kName>.add();
  Machine* machine = machine_if_ready();
  if (machine == nullptr || !machine->driver_started.load(std::memory_order_relaxed)) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (thread_state().in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  const Lock lock(machine->mutex);
  if (const CUresult sticky = machine->sticky; sticky != CUDA_SUCCESS) return sticky;
  if (const CUresult fault = injected(kName.text); fault != CUDA_SUCCESS) {
    return machine->fail(fault);
  }
  machine->clock.host_works(machine->clock.rates().call);
  constexpr CaptureRule kRule = capture_rule(kName.text);
  const CUresult captured = machine->captures.check(kRule);
  if (captured != CUDA_SUCCESS) return captured;
  return body(*machine);
}

/// As `call`, for functions that need a current context: `body(Machine&, int device)`.
/// Errors: CUDA_ERROR_INVALID_CONTEXT too.
template <Literal kName, typename Body>
CUresult call_on_device(Body&& body) {
  return call<kName>([&](Machine& machine) {
    const int device = thread_state().device;
    if (device == kNoDevice) return CUDA_ERROR_INVALID_CONTEXT;
    return static_cast<CUresult>(body(machine, device));
  });
}

/// Prints that `what` is not emulated and stores it for the error's text. Returns
/// CUDA_ERROR_NOT_SUPPORTED.
CUresult refuse(const char* what);

/// As `call`, for functions on a stream: `body(Machine&, Stream&)`. The default stream needs a
/// current context.
/// Errors: CUDA_ERROR_INVALID_HANDLE too.
template <Literal kName, typename Body>
CUresult call_on_stream(CUstream handle, Body&& body) {
  return call<kName>([&](Machine& machine) {
    const bool by_default =
        handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    const int device = thread_state().device;
    if (by_default && device == kNoDevice) return CUDA_ERROR_INVALID_CONTEXT;
    Stream* stream = machine.streams.find(handle, device);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    constexpr CaptureRule kRule = capture_rule(kName.text);
    const CUresult captured = machine.captures.check(kRule, *stream);
    if (captured == CUDA_ERROR_NOT_SUPPORTED) {
      return refuse((std::string(kName.text) + " in a capture").c_str());
    }
    if (captured != CUDA_SUCCESS) return captured;
    return static_cast<CUresult>(body(machine, *stream));
  });
}

}  // namespace spillway::emulator
