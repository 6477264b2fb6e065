// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"

#include "emulator/device/machine.h"
#include "emulator/device/touching.h"
#include "emulator/device/views.h"
#include "emulator/driver/functions.h"
#include "emulator/threads/host_thread.h"
#include "emulator/threads/spin_lock.h"
#include "emulator/torch/operators.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

namespace emu = spillway::emulator;

namespace {

/// `body(Machine&)` under the lock, or `otherwise` if there is no machine.
template <typename Body, typename Value>
Value with_machine(Value otherwise, Body&& body) {
  emu::Machine* machine = emu::machine_if_ready();
  if (machine == nullptr) return otherwise;
  const spillway::Lock lock(machine->mutex);
  return body(*machine);
}

/// The same for a stream; does nothing for one that does not exist.
template <typename Body>
void with_stream(CUstream handle, Body&& body) {
  with_machine(0, [&](emu::Machine& machine) {
    if (machine.settings.devices == 0) return 0;
    const int device = emu::thread_state().device;
    emu::Stream* stream = machine.streams.find(handle, device == emu::kNoDevice ? 0 : device);
    if (stream != nullptr) body(machine, *stream);
    return 0;
  });
}

/// Recent access checks of a thread. Trivially destructible, because it is used until a thread's
/// end.
struct Right {
  std::uint64_t generation;  // 0: empty
  CUstream stream;
  int device;  // the current one: it distinguishes default streams
  emu::Range range;
  bool write;
};

constinit thread_local std::array<Right, 8> rights{};
constinit thread_local std::size_t next_right = 0;

/// The thread's last drained stream, and the work counter at that time.
struct Drained {
  std::uint64_t work;
  CUstream stream;
  int device;

  bool operator==(const Drained&) const = default;
};

constinit thread_local Drained drained{};

std::optional<emu::Strided> strided(const spillway_emulator_view& view) {
  std::array<emu::Strided::Axis, emu::Strided::kMaxAxes> axes{};
  if (view.axes > axes.size()) return std::nullopt;
  for (std::size_t i = 0; i < view.axes; ++i)
    axes[i] = {view.counts[i], view.strides[i]};
  return emu::Strided::of(
      reinterpret_cast<std::uintptr_t>(view.at), view.run, view.axes, axes.data());
}

/// A copy of the text that outlives the process, the same for the same text.
const char* interned(const char* text) {
  static constinit emu::SpinLock lock;  // a mutex would order the program's threads
  static auto* texts = new std::unordered_set<std::string>;
  const emu::SpinGuard guard(lock);
  return texts->emplace(text).first->c_str();
}

bool known_device(const emu::Machine& machine, int device) {
  return device >= 0 && device < machine.settings.devices;
}

}  // namespace

extern "C" {

void* spillway_emulator_proc_address(const char* name, int version) {
  return emu::driver::look_up(name, version);
}

int spillway_emulator_ready() {
  return emu::machine_if_ready() != nullptr ? 1 : 0;
}

const char* spillway_emulator_error() {
  return emu::settings_error();
}

int spillway_emulator_install_operators() {
  return emu::torch::install_operators() ? 0 : 1;
}

int spillway_emulator_checks() {
  return emu::settings().ok() && emu::settings().value().check ? 1 : 0;
}

int spillway_emulator_clock_is_virtual() {
  return emu::settings().ok() && emu::settings().value().clock.is_virtual ? 1 : 0;
}

int spillway_emulator_shape_only() {
  return emu::settings().ok() && emu::settings().value().shape_only ? 1 : 0;
}

void spillway_emulator_assumed(spillway_emulator_assumptions* assumed) {
  const emu::Assumptions from =
      emu::settings().ok() ? emu::settings().value().assumed : emu::Assumptions();
  *assumed = {from.nonzero, from.unique, from.value, from.finite};
}

int spillway_emulator_rng_is_cpu() {
  return emu::settings().ok() && emu::settings().value().cpu_rng ? 1 : 0;
}

const char* spillway_emulator_fault(const char* spec) {
  static thread_local std::string line;
  const spillway::Status status = emu::set_faults(spec == nullptr ? "" : spec);
  line = status.detail();
  return status.ok() ? nullptr : line.c_str();
}

void spillway_emulator_drain(CUstream stream) {
  // Read before the queue is examined: later submissions are detected by the next call.
  const Drained now{
      emu::work_given.load(std::memory_order_acquire), stream, emu::thread_state().device};
  if (now == drained && emu::captures_going_on.load(std::memory_order_acquire) == 0) return;
  drained = now;
  with_stream(stream, [](emu::Machine& machine, emu::Stream& on) {
    if (on.capture != nullptr) {
      // The caller runs work immediately that should become a node: the capture must fail.
      on.capture->invalidated = true;
      emu::refuse("this operator in a capture");
      return;
    }
    machine.streams.drain(on);
  });
}

void spillway_emulator_begin(CUstream stream) {
  with_stream(stream, [](emu::Machine& machine, emu::Stream& on) { machine.streams.begin(on); });
}

void spillway_emulator_access(
    CUstream stream, const void* at, size_t bytes, int write, const char* name) {
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    const auto range = emu::Range::of(at, bytes);
    if (range) machine.ordering.access(on.actor, *range, write != 0, name);
  });
}

int spillway_emulator_touch(
    CUstream stream, const void* at, size_t bytes, int write, const char* name) {
  const auto range = emu::Range::of(at, bytes);
  if (bytes == 0) return 1;
  const int current = emu::thread_state().device;
  const std::uint64_t generation = emu::memory_generation.load(std::memory_order_acquire);
  for (const Right& each : rights) {
    if (each.generation == generation && each.stream == stream && each.device == current &&
        (each.write || write == 0) && range && each.range.contains(*range)) {
      return 1;
    }
  }
  int allowed = 0;
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    emu::Range granted;
    const emu::Range asked = range.value_or(emu::Range{0, UINTPTR_MAX});
    if (!emu::touch(machine, on.device, asked, write != 0, name, &granted)) return;
    allowed = 1;
    rights[next_right++ % rights.size()] = {generation, stream, current, granted, write != 0};
  });
  return allowed;
}

void spillway_emulator_host_access(const void* at, size_t bytes, int write, const char* name) {
  with_machine(0, [&](emu::Machine& machine) {
    const auto range = emu::Range::of(at, bytes);
    if (range && machine.host.overlaps(*range)) {
      machine.ordering.host_access(*range, write != 0, name);
    }
    return 0;
  });
}

void spillway_emulator_access_view(CUstream stream,
                                   const spillway_emulator_view* view,
                                   const char* name) {
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    const auto bytes = strided(*view);
    if (bytes) machine.ordering.access(on.actor, *bytes, view->write != 0, name);
  });
}

void spillway_emulator_host_access_view(const spillway_emulator_view* view, const char* name) {
  with_machine(0, [&](emu::Machine& machine) {
    const auto bytes = strided(*view);
    if (bytes && machine.host.overlaps(bytes->extent())) {
      machine.ordering.host_access(*bytes, view->write != 0, name);
    }
    return 0;
  });
}

void spillway_emulator_describe_addresses(const char* (*describe)(uintptr_t at)) {
  emu::describe_addresses(describe);
}

void spillway_emulator_tag(const char* tag) {
  emu::thread_state().tag = tag == nullptr ? nullptr : interned(tag);
}

void spillway_emulator_location(const char* location) {
  emu::thread_state().location = location;
}

void spillway_emulator_pause_threads(int pause) {
  emu::pause_this_thread(pause != 0);
}

void spillway_emulator_thread_releases(const void* object) {
  emu::release_at(object);
}

void spillway_emulator_thread_acquires(const void* object) {
  emu::acquire_at(object);
}

void spillway_emulator_fail(int error) {
  emu::Machine* machine = emu::machine_if_ready();
  CUresult none = CUDA_SUCCESS;
  if (machine != nullptr) {
    machine->sticky.compare_exchange_strong(none, static_cast<CUresult>(error));
  }
}

int spillway_emulator_owns(const void* at) {
  return emu::is_device_address(reinterpret_cast<std::uintptr_t>(at)) ? 1 : 0;
}

int spillway_emulator_capturing(CUstream stream) {
  if (emu::captures_going_on.load(std::memory_order_acquire) == 0) return 0;
  int capturing = 0;
  with_stream(stream, [&](emu::Machine& /*machine*/, const emu::Stream& on) {
    capturing = on.capture != nullptr ? 1 : 0;
  });
  return capturing;
}

// NOLINTNEXTLINE(readability-function-size): a C interface
int spillway_emulator_add_node(CUstream stream,
                               const char* name,
                               void (*run)(void* state),
                               void (*destroy)(void* state),
                               void* state,
                               const struct spillway_emulator_view* accesses,
                               size_t count) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    if (on.capture == nullptr) {
      result = CUDA_ERROR_ILLEGAL_STATE;
      return;
    }
    result = machine.captures.check({}, on);
    if (result != CUDA_SUCCESS) return;
    emu::Operation operation;
    operation.kind = CU_GRAPH_NODE_TYPE_KERNEL;
    operation.name = name;
    operation.runs = emu::Operation::Runs::kUnlocked;
    for (size_t i = 0; i < count; ++i) {
      const auto bytes = strided(accesses[i]);
      if (bytes) operation.accesses.push_back({*bytes, accesses[i].write != 0, name});
    }
    operation.work = [run, kept = std::shared_ptr<void>(state, destroy)] {
      run(kept.get());
    };
    machine.captures.add(on, std::move(operation));
  });
  return result;
}

void spillway_emulator_cost(CUstream stream,
                            // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): a C interface
                            uint64_t bytes,
                            double flops,
                            int arithmetic,
                            int kernel) {
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    const auto type = static_cast<emu::Arithmetic>(std::clamp(arithmetic, 0, 5));
    const auto kind = static_cast<emu::KernelKind>(std::clamp(kernel, 0, 3));
    const double seconds = machine.clock.rates().seconds(flops, type, kind);
    machine.streams.add_cost(on, {emu::Cost::Kind::kMemory, bytes, seconds, kind});
  });
}

void spillway_emulator_collective(CUstream stream, uint64_t bytes) {
  with_stream(stream, [&](emu::Machine& machine, emu::Stream& on) {
    machine.streams.add_cost(on, {emu::Cost::Kind::kCollective, bytes});
  });
}

double spillway_emulator_now_ms() {
  return with_machine(0.0, [](emu::Machine& machine) { return machine.clock.now_ms(); });
}

int spillway_emulator_sleep(double seconds) {
  return with_machine(0, [&](emu::Machine& machine) {
    if (!machine.clock.is_virtual()) return 0;
    machine.clock.host_works(seconds);
    return 1;
  });
}

double spillway_emulator_end_ms(int device) {
  return with_machine(0.0, [&](emu::Machine& machine) {
    return known_device(machine, device) ? machine.streams.end(device) * 1e3 : 0;
  });
}

double spillway_emulator_busy_ms(int device, int work) {
  return with_machine(0.0, [&](emu::Machine& machine) {
    const bool known = known_device(machine, device) && work >= 0 && work < int{emu::kWorks};
    return known ? machine.clock.busy(device, static_cast<emu::Work>(work)) * 1e3 : 0;
  });
}

uint64_t spillway_emulator_host_peak() {
  return with_machine(uint64_t{0}, [](emu::Machine& machine) { return machine.host.peak(); });
}

uint64_t spillway_emulator_count(const char* what) {
  return what == nullptr ? 0 : emu::Counter::of(what);
}

const char* spillway_emulator_race(size_t index) {
  return with_machine(static_cast<const char*>(nullptr),
                      [&](emu::Machine& machine) { return machine.checker.race(index); });
}

void spillway_emulator_clear_races() {
  with_machine(0, [](emu::Machine& machine) {
    machine.checker.clear();
    return 0;
  });
}

uint64_t spillway_emulator_used(int device) {
  return with_machine(uint64_t{0}, [&](emu::Machine& machine) {
    return known_device(machine, device) ? uint64_t{machine.capacity.used(device)} : 0;
  });
}

uint64_t spillway_emulator_peak(int device) {
  return with_machine(uint64_t{0}, [&](emu::Machine& machine) {
    return known_device(machine, device) ? uint64_t{machine.capacity.peak(device)} : 0;
  });
}

void spillway_emulator_reset_peak(int device) {
  with_machine(0, [&](emu::Machine& machine) {
    if (known_device(machine, device)) machine.capacity.reset_peak(device);
    return 0;
  });
}
}
