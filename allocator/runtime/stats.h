// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap.h"
#include "allocator/residency/pause.h"
#include "allocator/residency/residency.h"
#include "allocator/step/step_stats.h"
#include "allocator/transfer/host_arena.h"

#include <array>
#include <cstddef>
#include <vector>

namespace spillway {

/// Bytes of model state that may leave a device, by class: parameters, buffers, gradients,
/// optimizer states, autocast's casts.
struct ModelStateBytes {
  static constexpr std::size_t kClasses = 5;
  std::array<Bytes, kClasses> resident{};
  std::array<Bytes, kClasses> offloaded{};
};

struct DeviceStats {
  DeviceId device;
  HeapStats heap;
  HostArenaStats host;
  ResidencyStats residency;
  PauseStats pauses;
  ModelStateBytes model_state;
};

struct RuntimeStats : SessionStats {
  driver::Counters driver{};
  std::vector<DeviceStats> devices{};
};

}  // namespace spillway
