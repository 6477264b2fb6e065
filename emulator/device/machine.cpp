// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"

#include "emulator/device/errors.h"
#include "emulator/device/touching.h"
#include "emulator/threads/host_thread.h"

#include <pthread.h>

#include <cstdio>

namespace spillway::emulator {
namespace {

constinit std::atomic<bool> forked{false};

std::deque<MemoryFile> memory_files(const Visible& devices) {
  std::deque<MemoryFile> files;
  for (const int device : devices)
    files.emplace_back(device);
  return files;
}

constinit std::atomic<bool> begun{false};  // the machine is being created, or exists
constinit std::atomic<Machine*> made{nullptr};
constinit Machine* held_across_fork = nullptr;

// The lock is held across a fork, so that the child does not inherit it from a thread that it
// lacks. Watched from the library's load on: a child of a process that was just making its machine
// must not wait for that. NOLINTBEGIN(clang-diagnostic-thread-safety-analysis): each does one half.
void before_fork() {
  held_across_fork = made.load();
  if (held_across_fork != nullptr) held_across_fork->mutex.lock();
}

void after_fork() {
  if (held_across_fork != nullptr) held_across_fork->mutex.unlock();
}

void after_fork_in_child() {
  after_fork();
  if (begun.load()) forked.store(true);
}

// NOLINTEND(clang-diagnostic-thread-safety-analysis)

const int kForkHandlers = pthread_atfork(before_fork, after_fork, after_fork_in_child);

Machine* make() {
  if (!settings().ok() || kForkHandlers != 0) return nullptr;
  begun.store(true);
  auto* machine = new Machine(settings().value());  // never destroyed
  ignore_objects_in(machine, machine + 1);
  if (!machine->settings.faults.empty() && !set_faults(machine->settings.faults).ok()) {
    return nullptr;
  }
  report_host_faults();
  made.store(machine);
  return machine;
}

/// After all exit functions of the program.
__attribute__((destructor)) void print_race_count() {
  const Machine* machine = made.load();
  if (machine == nullptr || forked.load() || !machine->settings.check) return;
  if (machine->driver_started.load()) machine->checker.print_end();
}

}  // namespace

Machine::Machine(const Settings& with)
    : settings(with),
      checker(true, with.races),
      ordering(checker, with.check),
      capacity(with.devices, with.memory.count(), with.context.count()),
      files(memory_files(with.visible)),
      allocations(capacity, files, with.poison),
      virtual_memory(capacity, files, with.poison),
      captures(graphs),
      clock(with.clock, with.devices),
      streams(mutex, ordering, captures, clock, with.schedule, with.devices) {}

CUresult Machine::fail(CUresult error) {
  if (is_sticky(error)) sticky.store(error);
  return error;
}

Machine* machine_if_ready() {
  if (forked.load(std::memory_order_relaxed)) return nullptr;
  static Machine* const machine = make();
  return machine;
}

CUresult refuse(const char* what) {
  std::snprintf(
      thread_state().refused.data(), thread_state().refused.size(), "%s is not emulated", what);
  std::fprintf(stderr, "spillway-emulator: %s\n", thread_state().refused.data());
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace spillway::emulator
