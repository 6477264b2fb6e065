// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/runtime.h"

#include <dlfcn.h>

namespace spillway::operators {
namespace {

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

EmulatedRuntime find_all() {
  EmulatedRuntime found;
  find(found.ready, "spillway_emulator_ready");
  find(found.error, "spillway_emulator_error");
  decltype(&spillway_emulator_checks) checks = nullptr;
  find(checks, "spillway_emulator_checks");
  found.checks = checks != nullptr && checks() != 0;
  decltype(&spillway_emulator_clock_is_virtual) clock_is_virtual = nullptr;
  find(clock_is_virtual, "spillway_emulator_clock_is_virtual");
  found.virtual_clock = clock_is_virtual != nullptr && clock_is_virtual() != 0;
  decltype(&spillway_emulator_shape_only) shape_only = nullptr;
  find(shape_only, "spillway_emulator_shape_only");
  found.shape_only = shape_only != nullptr && shape_only() != 0;
  decltype(&spillway_emulator_assumed) assumed = nullptr;
  find(assumed, "spillway_emulator_assumed");
  if (assumed != nullptr) assumed(&found.assumed);
  find(found.collective, "spillway_emulator_collective");
  find(found.cost, "spillway_emulator_cost");
  find(found.rng_is_cpu, "spillway_emulator_rng_is_cpu");
  find(found.drain, "spillway_emulator_drain");
  find(found.begin, "spillway_emulator_begin");
  find(found.access, "spillway_emulator_access");
  find(found.touch, "spillway_emulator_touch");
  find(found.capturing, "spillway_emulator_capturing");
  find(found.add_node, "spillway_emulator_add_node");
  find(found.fail, "spillway_emulator_fail");
  find(found.access_view, "spillway_emulator_access_view");
  find(found.host_access_view, "spillway_emulator_host_access_view");
  find(found.location, "spillway_emulator_location");
  find(found.pause_threads, "spillway_emulator_pause_threads");
  find(found.synchronize, "cudaStreamSynchronize");
  return found;
}

}  // namespace

bool EmulatedRuntime::complete() const {
  return ready && error && rng_is_cpu && drain && begin && access && access_view &&
         host_access_view && location && pause_threads && touch && capturing && add_node &&
         collective && cost && fail && synchronize;
}

const EmulatedRuntime& emulated_runtime() {
  static const EmulatedRuntime runtime = find_all();
  return runtime;
}

}  // namespace spillway::operators
