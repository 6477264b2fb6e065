// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/settings.h"

#include "allocator/base/env.h"
#include "emulator/device/addresses.h"
#include "emulator/device/faults.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

namespace spillway::emulator {
namespace {

constexpr Bytes kDefaultMemory{8ULL << 30U};

Status refuse_unavailable() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto profile, env::text("SPILLWAY_EMULATE_PROFILE"));
  if (profile) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_PROFILE=" + *profile +
                              ": is read by spillway run and spillway env, which make it "
                              "SPILLWAY_EMULATE_MEMORY and others. Set those, or unset it.");
  }
  return {};
}

/// "3us" or "0.5ms" in seconds.
Result<double> parse_duration(const std::string& name, const std::string& value) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  std::string_view unit = value;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const double number = value.starts_with('.') ? kNone : env::read_decimal(unit).value_or(kNone);
  for (const auto& [known, seconds] : kUnits) {
    if (unit == known && number * seconds <= 3600) return number * seconds;
  }
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      name + "=" + value + ": expected a time up to 3600s with its unit, such as 3us or 0.5ms");
}

Status read_rate(const char* name, double* rate) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto size, env::size(name));
  if (!size) return {};
  if (size->zero()) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        std::string(name) + ": expected a size per second above 0, such as 50GiB");
  }
  *rate = static_cast<double>(size->count());
  return {};
}

Result<ClockSettings> read_clock(bool shape_only) {
  ClockSettings clock;
  SPILLWAY_ASSIGN_OR_RETURN(const auto kind,
                            env::choice("SPILLWAY_EMULATE_CLOCK", {"real", "virtual"}));
  if (shape_only && kind.value_or("virtual") != "virtual") {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_CLOCK=real: SPILLWAY_EMULATE_SHAPE_ONLY needs the "
                          "virtual clock. Unset one of them.");
  }
  clock.is_virtual = shape_only || kind.value_or("real") == "virtual";
  for (const char* name : {"SPILLWAY_EMULATE_LINK_H2D",
                           "SPILLWAY_EMULATE_LINK_D2H",
                           "SPILLWAY_EMULATE_LATENCY",
                           "SPILLWAY_EMULATE_RATES"}) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto value, env::text(name));
    if (value && !clock.is_virtual) {
      return SPILLWAY_ERROR(Code::kInvalidArgument,
                            std::string(name) + "=" + *value +
                                ": is for the virtual clock. Set SPILLWAY_EMULATE_CLOCK=virtual.");
    }
  }
  SPILLWAY_RETURN_IF_ERROR(read_rate("SPILLWAY_EMULATE_LINK_H2D", &clock.host_to_device));
  SPILLWAY_RETURN_IF_ERROR(read_rate("SPILLWAY_EMULATE_LINK_D2H", &clock.device_to_host));
  SPILLWAY_ASSIGN_OR_RETURN(const auto latency, env::text("SPILLWAY_EMULATE_LATENCY"));
  if (latency) {
    SPILLWAY_ASSIGN_OR_RETURN(clock.latency, parse_duration("SPILLWAY_EMULATE_LATENCY", *latency));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto rates, env::text("SPILLWAY_EMULATE_RATES"));
  const Result<Rates> read = parse_rates(rates.value_or(""));
  if (!read.ok()) {
    return SPILLWAY_ERROR(read.status().code(),
                          "SPILLWAY_EMULATE_RATES: " + read.status().detail());
  }
  clock.rates = read.value();
  return clock;
}

Result<Chip> read_chip() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto capability, env::text("SPILLWAY_EMULATE_CAPABILITY"));
  Result<Chip> chip = capability ? chip_of(*capability) : Chip();
  if (!chip.ok()) {
    return SPILLWAY_ERROR(chip.status().code(),
                          "SPILLWAY_EMULATE_CAPABILITY=" + chip.status().detail());
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto multiprocessors,
                            env::whole("SPILLWAY_EMULATE_MULTIPROCESSORS", 1, 1024));
  Chip with = chip.value();
  with.multiprocessors = static_cast<int>(multiprocessors.value_or(with.multiprocessors));
  return with;
}

Status read_memory(Settings* settings) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto memory, env::size("SPILLWAY_EMULATE_MEMORY"));
  settings->memory = memory.value_or(kDefaultMemory).rounded_down(Bytes{kGranularity});
  if (settings->memory.zero()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_MEMORY: expected at least 2MiB, such as 8GiB");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto context, env::size("SPILLWAY_EMULATE_CUDA_CONTEXT"));
  settings->context = context.value_or(Bytes{});
  if (settings->context >= settings->memory) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "SPILLWAY_EMULATE_CUDA_CONTEXT: leaves nothing of SPILLWAY_EMULATE_MEMORY. "
        "Lower it.");
  }
  return {};
}

Result<Assumptions> read_assumptions(bool shape_only) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto assume, env::text("SPILLWAY_EMULATE_ASSUME"));
  if (assume && !shape_only) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_ASSUME=" + *assume +
                              ": is for dry runs. Set SPILLWAY_EMULATE_SHAPE_ONLY=1.");
  }
  Result<Assumptions> assumed = parse_assumptions(assume.value_or(""));
  if (!assumed.ok()) {
    return SPILLWAY_ERROR(assumed.status().code(),
                          "SPILLWAY_EMULATE_ASSUME: " + assumed.status().detail());
  }
  return assumed;
}

/// Refuses settings that need bytes or operators, which a dry run lacks.
Status refuse_in_dry_runs(const Settings& settings) {
  if (!settings.shape_only) return {};
  if (settings.poison) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_POISON=1: touches every byte, and "
                          "SPILLWAY_EMULATE_SHAPE_ONLY=1 none. Unset one of them.");
  }
  if (settings.check) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_EMULATE_CHECK=1: looks at what operators touch, and "
                          "SPILLWAY_EMULATE_SHAPE_ONLY=1 has none that do. Unset one of them.");
  }
  return {};
}

Result<Settings> read() {
  SPILLWAY_RETURN_IF_ERROR(env::check_names());
  SPILLWAY_RETURN_IF_ERROR(refuse_unavailable());
  SPILLWAY_ASSIGN_OR_RETURN(const auto emulate, env::flag("SPILLWAY_EMULATE"));
  if (!emulate.value_or(false)) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "the emulated GPU is loaded but not switched on. Set SPILLWAY_EMULATE=1.");
  }
  Settings settings;
  SPILLWAY_ASSIGN_OR_RETURN(const auto schedule, env::text("SPILLWAY_EMULATE_SCHEDULE"));
  SPILLWAY_ASSIGN_OR_RETURN(settings.schedule, parse_schedule(schedule.value_or("eager")));
  SPILLWAY_ASSIGN_OR_RETURN(const auto check, env::flag("SPILLWAY_EMULATE_CHECK"));
  settings.check = check.value_or(false);
  SPILLWAY_ASSIGN_OR_RETURN(const auto reports, env::text("SPILLWAY_EMULATE_REPORTS"));
  settings.reports = reports.value_or("");
  SPILLWAY_ASSIGN_OR_RETURN(const auto devices, env::whole("SPILLWAY_EMULATE_DEVICES", 1, 8));
  settings.visible =
      visible_devices(env::foreign("CUDA_VISIBLE_DEVICES"), static_cast<int>(devices.value_or(1)));
  settings.devices = static_cast<int>(settings.visible.size());
  SPILLWAY_RETURN_IF_ERROR(read_memory(&settings));
  SPILLWAY_ASSIGN_OR_RETURN(settings.chip, read_chip());
  SPILLWAY_ASSIGN_OR_RETURN(const auto rng, env::choice("SPILLWAY_EMULATE_RNG", {"philox", "cpu"}));
  settings.cpu_rng = rng.value_or("philox") == "cpu";
  SPILLWAY_ASSIGN_OR_RETURN(const auto shape_only, env::flag("SPILLWAY_EMULATE_SHAPE_ONLY"));
  settings.shape_only = shape_only.value_or(false);
  SPILLWAY_ASSIGN_OR_RETURN(settings.clock, read_clock(settings.shape_only));
  SPILLWAY_ASSIGN_OR_RETURN(const auto poison, env::flag("SPILLWAY_EMULATE_POISON"));
  settings.poison = poison.value_or(false);
  SPILLWAY_RETURN_IF_ERROR(refuse_in_dry_runs(settings));
  SPILLWAY_ASSIGN_OR_RETURN(settings.assumed, read_assumptions(settings.shape_only));
  SPILLWAY_ASSIGN_OR_RETURN(const auto faults, env::text("SPILLWAY_EMULATE_FAULT"));
  settings.faults = faults.value_or("");
  if (const Status status = check_faults(settings.faults); !status.ok()) {
    return SPILLWAY_ERROR(status.code(), "SPILLWAY_EMULATE_FAULT: " + status.detail());
  }
  return settings;
}

}  // namespace

Result<Schedule> parse_schedule(const std::string& value) {
  if (value == "eager") return Schedule{Schedule::Kind::kEager};
  if (value == "late") return Schedule{Schedule::Kind::kLate};
  constexpr std::string_view kShuffled = "shuffled:";
  if (value.starts_with(kShuffled)) {
    Schedule schedule{Schedule::Kind::kShuffled};
    const char* end = value.data() + value.size();
    const auto read = std::from_chars(value.data() + kShuffled.size(), end, schedule.seed);
    if (read.ec == std::errc() && read.ptr == end) return schedule;
  }
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        "SPILLWAY_EMULATE_SCHEDULE=" + value +
                            ": expected one of eager, late, shuffled:SEED with an integer for "
                            "SEED, such as shuffled:7");
}

Visible visible_devices(const std::optional<std::string>& value, int devices) {
  Visible visible;
  if (!value) {
    visible.resize(static_cast<std::size_t>(devices));
    std::iota(visible.begin(), visible.end(), 0);
    return visible;
  }
  std::string_view rest = *value;
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::size_t comma = std::min(rest.find(','), rest.size());
    int device = -1;
    // Characters after a number are ignored, as by strtoul.
    std::from_chars(rest.data(), rest.data() + comma, device);
    if (device < 0 || device >= devices) break;
    if (std::find(visible.begin(), visible.end(), device) != visible.end()) return {};
    visible.push_back(device);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return visible;
}

int Settings::ordinal_of(int in_machine) const {
  const auto found = std::find(visible.begin(), visible.end(), in_machine);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

const Result<Settings>& settings() {
  static const auto* result = [] {
    // never freed: used until the process ends
    const auto* read_once = new Result<Settings>(read());
    if (!read_once->ok()) {
      std::fprintf(stderr, "spillway-emulator: %s\n", read_once->status().detail().c_str());
    }
    return read_once;
  }();
  return *result;
}

const char* settings_error() {
  return settings().ok() ? "" : settings().status().detail().c_str();
}

}  // namespace spillway::emulator
