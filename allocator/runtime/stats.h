// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap.h"
#include "allocator/residency/pause.h"
#include "allocator/residency/residency.h"
#include "allocator/step/step_stats.h"
#include "allocator/transfer/host_arena.h"

#include <vector>

namespace spillway {

struct DeviceStats {
  DeviceId device;
  HeapStats heap;
  HostArenaStats host;
  ResidencyStats residency;
  PauseStats pauses;
};

struct RuntimeStats : SessionStats {
  driver::Counters driver{};
  std::vector<DeviceStats> devices{};
};

}  // namespace spillway
