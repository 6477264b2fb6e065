// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "emulator/device/assumptions.h"
#include "emulator/device/description.h"
#include "emulator/device/rates.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::emulator {

/// The time at which queued operations run; see Streams.
struct Schedule {
  enum class Kind { kEager, kLate, kShuffled };

  Kind kind = Kind::kEager;
  std::uint64_t seed = 0;  // of kShuffled
};

/// As SPILLWAY_EMULATE_SCHEDULE. Errors: kInvalidArgument for another text.
Result<Schedule> parse_schedule(const std::string& value);

/// The time of events; see Clock.
struct ClockSettings {
  bool is_virtual = false;    // SPILLWAY_EMULATE_CLOCK=virtual
  double host_to_device = 0;  // SPILLWAY_EMULATE_LINK_H2D, bytes per second
  double device_to_host = 0;  // SPILLWAY_EMULATE_LINK_D2H
  double latency = 0;         // SPILLWAY_EMULATE_LATENCY, seconds of each copy
  Rates rates;                // SPILLWAY_EMULATE_RATES
};

/// The devices that a program sees, by their number in the machine.
using Visible = std::vector<int>;

/// Parses CUDA_VISIBLE_DEVICES as the driver does: numbers in the program's order, up to the first
/// invalid one. No device if one is repeated. Unset shows all. The emulated devices have no UUID,
/// so a UUID is invalid.
Visible visible_devices(const std::optional<std::string>& value, int devices);

struct Settings {
  Schedule schedule;   // SPILLWAY_EMULATE_SCHEDULE
  bool check = false;  // SPILLWAY_EMULATE_CHECK
  std::string races;   // SPILLWAY_EMULATE_RACES, the file that counts races
  int devices = 1;     // number of SPILLWAY_EMULATE_DEVICES that the program sees
  Visible visible;     // the visible devices
  Bytes memory;        // SPILLWAY_EMULATE_MEMORY, per device
  // SPILLWAY_EMULATE_CUDA_CONTEXT: the part of it that CUDA itself occupies
  Bytes context;
  Chip chip;                // SPILLWAY_EMULATE_CAPABILITY, SPILLWAY_EMULATE_MULTIPROCESSORS
  bool cpu_rng = false;     // SPILLWAY_EMULATE_RNG
  bool poison = false;      // SPILLWAY_EMULATE_POISON
  bool shape_only = false;  // SPILLWAY_EMULATE_SHAPE_ONLY; the clock is virtual then
  Assumptions assumed;      // SPILLWAY_EMULATE_ASSUME
  std::string faults;       // SPILLWAY_EMULATE_FAULT
  ClockSettings clock;

  /// The program's ordinal of the machine's device; -1 if it is not visible.
  [[nodiscard]] int ordinal_of(int in_machine) const;
};

/// The environment's settings, read once.
/// Errors: kInvalidArgument for unknown names, invalid values, settings that are not available yet,
/// and SPILLWAY_EMULATE other than 1. The first reader prints the line.
/// Threads: safe.
const Result<Settings>& settings();

/// The line of a failed settings(); "" if they are valid.
const char* settings_error();

}  // namespace spillway::emulator
