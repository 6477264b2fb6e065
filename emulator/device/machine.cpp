// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"

#include "emulator/device/errors.h"
#include "emulator/device/host_faults.h"
#include "emulator/threads/host_thread.h"

#include <pthread.h>

#include <cstdio>

namespace spillway::emulator {
namespace {

constinit std::atomic<bool> forked{false};

std::deque<MemoryFile> memory_files(int devices) {
  std::deque<MemoryFile> files;
  for (int device = 0; device < devices; ++device)
    files.emplace_back(device);
  return files;
}

Machine* make() {
  if (!settings().ok()) return nullptr;
  static auto* machine = new Machine(settings().value());
  ignore_objects_in(machine, machine + 1);
  if (!machine->settings.faults.empty() && !set_faults(machine->settings.faults).ok())
    return nullptr;
  // The lock is held across a fork, so that the child does not inherit it from a thread that it
  // lacks. NOLINTBEGIN(clang-diagnostic-thread-safety-analysis): each handler does one half.
  static const int handlers = pthread_atfork([] { machine->mutex.lock(); },
                                             [] { machine->mutex.unlock(); },
                                             [] {
                                               machine->mutex.unlock();
                                               forked.store(true);
                                             });
  // NOLINTEND(clang-diagnostic-thread-safety-analysis)
  report_host_faults();
  return handlers == 0 ? machine : nullptr;
}

}  // namespace

Machine::Machine(const Settings& with)
    : settings(with),
      ordering(checker, with.check),
      capacity(with.devices, with.memory.count()),
      files(memory_files(with.devices)),
      allocations(capacity, files, with.poison),
      virtual_memory(capacity, files, with.poison),
      captures(graphs),
      streams(mutex, ordering, captures, with.schedule, with.devices) {}

CUresult Machine::fail(CUresult error) {
  if (is_sticky(error)) sticky.store(error);
  return error;
}

Machine* machine_if_ready() {
  static Machine* const machine = make();
  return forked.load(std::memory_order_relaxed) ? nullptr : machine;
}

CUresult refuse(const char* what) {
  std::snprintf(
      thread_state().refused.data(), thread_state().refused.size(), "%s is not emulated", what);
  std::fprintf(stderr, "spillway-emulator: %s\n", thread_state().refused.data());
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace spillway::emulator
