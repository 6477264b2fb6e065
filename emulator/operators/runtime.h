// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"

#include <cuda_runtime_api.h>

namespace spillway::operators {

/// The emulated CUDA runtime's functions for the operator layer, found by name in the process. It
/// is preloaded, never linked, so that this library can be loaded (and report an error) without it.
struct EmulatedRuntime {
  decltype(&spillway_emulator_ready) ready = nullptr;
  decltype(&spillway_emulator_error) error = nullptr;
  bool checks = false;         // SPILLWAY_EMULATE_CHECK
  bool virtual_clock = false;  // SPILLWAY_EMULATE_CLOCK=virtual
  bool shape_only = false;     // SPILLWAY_EMULATE_SHAPE_ONLY
  spillway_emulator_assumptions assumed{};
  decltype(&spillway_emulator_rng_is_cpu) rng_is_cpu = nullptr;
  decltype(&spillway_emulator_drain) drain = nullptr;
  decltype(&spillway_emulator_begin) begin = nullptr;
  decltype(&spillway_emulator_access) access = nullptr;
  decltype(&spillway_emulator_touch) touch = nullptr;
  decltype(&spillway_emulator_capturing) capturing = nullptr;
  decltype(&spillway_emulator_add_node) add_node = nullptr;
  decltype(&spillway_emulator_collective) collective = nullptr;
  decltype(&spillway_emulator_cost) cost = nullptr;
  decltype(&spillway_emulator_fail) fail = nullptr;
  decltype(&spillway_emulator_access_view) access_view = nullptr;
  decltype(&spillway_emulator_host_access_view) host_access_view = nullptr;
  decltype(&spillway_emulator_location) location = nullptr;
  decltype(&spillway_emulator_pause_threads) pause_threads = nullptr;
  decltype(&cudaStreamSynchronize) synchronize = nullptr;

  /// Whether every function was found.
  [[nodiscard]] bool complete() const;
};

/// The process's emulated runtime; functions that it lacks are null.
const EmulatedRuntime& emulated_runtime();

}  // namespace spillway::operators
