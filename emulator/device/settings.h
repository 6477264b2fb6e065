// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "emulator/device/description.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::emulator {

/// The arithmetic units: the number type determines the rate. Numbered as in emulator.h.
enum class Arithmetic : std::uint8_t { kHalf, kTf32, kSingle, kDouble, kFp8, kInt8 };

/// The kind of a kernel: each kind reaches its own share of the arithmetic's rate. Numbered as in
/// emulator.h.
enum class KernelKind : std::uint8_t { kOther, kProduct, kAttention, kAttentionBackward };

/// The rates of a device on the virtual clock, by default close to a large accelerator of 2024.
struct Rates {
  double memory = 4e12;  // bytes per second of kernels, fills and copies within the device
  double half = 400e12;  // floating point operations per second
  double tf32 = 400e12;
  double single = 400e12;
  double dbl = 400e12;
  double fp8 = 400e12;
  double int8 = 400e12;
  double peers = 400e9;    // bytes per second to other devices, in copies and collectives
  double pageable = 1e18;  // maximum bytes per second of copies to or from pageable host memory
  double product = 1;      // share of those rates that matrix products and convolutions reach
  double attention = 1;
  double attention_backward = 1;
  // share of the link's rates that concurrent copies in both directions reach; at most 0.5: they
  // run one after the other
  double duplex = 1;
  double kernel = 2e-6;  // seconds of overhead of a kernel, fill or copy within devices
  double launch = 4e-6;  // host time of an operator, without its calls
  double call = 1e-6;    // host time of a call
  double hop = 0;        // delay of a waiting stream after the event that it waits for
  // Host time of calls on virtual memory besides `call`, for each chunk
  double create = 0;
  double map = 0;
  double access = 0;  // also for each device
  double unmap = 0;
  double release = 0;
  // Bytes per second of host time besides
  double create_rate = 1e18;   // of creating, mapping and access together
  double release_rate = 1e18;  // of unmapping and release together

  /// Seconds of that many operations without other limits.
  [[nodiscard]] double seconds(double flops, Arithmetic arithmetic, KernelKind kind) const;
};

/// A valid value of SPILLWAY_EMULATE_RATES, such as "memory=3.35e12,half=989e12,product=0.75":
/// omitted names have their default.
Rates parse_rates(std::string_view text);

/// Values that a dry run assumes when the program reads values that were not computed.
struct Assumptions {
  double nonzero = 1;  // selected share of a mask
  double unique = -1;  // share of elements that differ from all others; below 0: no assumption
  double value = 1;    // value of small results of large operands
  double finite = 1;   // isnan and isinf find no element
};

/// A valid value of SPILLWAY_EMULATE_ASSUME, such as "finite,nonzero=0.5": omitted names have their
/// default.
Assumptions parse_assumptions(std::string_view text);

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
