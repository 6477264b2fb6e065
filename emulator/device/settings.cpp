// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/settings.h"

#include "allocator/base/env.h"
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"
#include "emulator/device/addresses.h"
#include "emulator/device/faults.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <utility>

namespace spillway::emulator {
namespace {

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

Result<ClockSettings> read_clock(bool shape_only) {
  ClockSettings clock;
  SPILLWAY_ASSIGN_OR_RETURN(const auto kind, env::text("SPILLWAY_EMULATE_CLOCK"));
  clock.is_virtual = shape_only || kind == "virtual";
  SPILLWAY_ASSIGN_OR_RETURN(const auto to_device, env::number("SPILLWAY_EMULATE_LINK_H2D"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto to_host, env::number("SPILLWAY_EMULATE_LINK_D2H"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto latency, env::number("SPILLWAY_EMULATE_LATENCY"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto rates, env::text("SPILLWAY_EMULATE_RATES"));
  clock.host_to_device = to_device.value();
  clock.device_to_host = to_host.value();
  clock.latency = latency.value();
  clock.rates = parse_rates(rates.value_or(""));
  return clock;
}

Result<Chip> read_chip() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto capability, env::text("SPILLWAY_EMULATE_CAPABILITY"));
  SPILLWAY_ASSIGN_OR_RETURN(Chip chip, chip_of(capability.value()));
  SPILLWAY_ASSIGN_OR_RETURN(const long multiprocessors,
                            env::integer("SPILLWAY_EMULATE_MULTIPROCESSORS"));
  chip.multiprocessors = static_cast<int>(multiprocessors);
  return chip;
}

Status read_memory(Settings* settings) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto memory, env::size("SPILLWAY_EMULATE_MEMORY"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto context, env::size("SPILLWAY_EMULATE_CUDA_CONTEXT"));
  settings->memory = memory.value().rounded_down(Bytes{kGranularity});
  settings->context = context.value();
  if (settings->context >= settings->memory) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "SPILLWAY_EMULATE_CUDA_CONTEXT: leaves nothing of SPILLWAY_EMULATE_MEMORY. "
        "Lower it.");
  }
  return {};
}

Result<Settings> read() {
  SPILLWAY_RETURN_IF_ERROR(settings::check_environment(settings::Section::kEmulated));
  SPILLWAY_RETURN_IF_ERROR(refuse_unavailable());
  SPILLWAY_ASSIGN_OR_RETURN(const bool emulate, env::flag("SPILLWAY_EMULATE"));
  if (!emulate) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "the emulated GPU is loaded but not switched on. Set SPILLWAY_EMULATE=1.");
  }
  Settings read;
  SPILLWAY_ASSIGN_OR_RETURN(const auto schedule, env::text("SPILLWAY_EMULATE_SCHEDULE"));
  SPILLWAY_ASSIGN_OR_RETURN(read.schedule, parse_schedule(schedule.value()));
  SPILLWAY_ASSIGN_OR_RETURN(read.check, env::flag("SPILLWAY_EMULATE_CHECK"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto races, env::text("SPILLWAY_EMULATE_RACES"));
  read.races = races.value_or("");
  SPILLWAY_ASSIGN_OR_RETURN(const long devices, env::integer("SPILLWAY_EMULATE_DEVICES"));
  read.visible = visible_devices(env::foreign("CUDA_VISIBLE_DEVICES"), static_cast<int>(devices));
  read.devices = static_cast<int>(read.visible.size());
  SPILLWAY_RETURN_IF_ERROR(read_memory(&read));
  SPILLWAY_ASSIGN_OR_RETURN(read.chip, read_chip());
  SPILLWAY_ASSIGN_OR_RETURN(const auto rng, env::text("SPILLWAY_EMULATE_RNG"));
  read.cpu_rng = rng == "cpu";
  SPILLWAY_ASSIGN_OR_RETURN(read.shape_only, env::flag("SPILLWAY_EMULATE_SHAPE_ONLY"));
  SPILLWAY_ASSIGN_OR_RETURN(read.clock, read_clock(read.shape_only));
  SPILLWAY_ASSIGN_OR_RETURN(read.poison, env::flag("SPILLWAY_EMULATE_POISON"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto assumed, env::text("SPILLWAY_EMULATE_ASSUME"));
  read.assumed = parse_assumptions(assumed.value_or(""));
  SPILLWAY_ASSIGN_OR_RETURN(const auto faults, env::text("SPILLWAY_EMULATE_FAULT"));
  read.faults = faults.value_or("");
  if (const Status status = check_faults(read.faults); !status.ok()) {
    return SPILLWAY_ERROR(status.code(), "SPILLWAY_EMULATE_FAULT: " + status.detail());
  }
  return read;
}

}  // namespace

Result<Schedule> parse_schedule(const std::string& value) {
  constexpr const char* kName = "SPILLWAY_EMULATE_SCHEDULE";
  SPILLWAY_RETURN_IF_ERROR(settings::check(*settings::find(kName), kName, value));
  if (value == "eager") return Schedule{Schedule::Kind::kEager};
  if (value == "late") return Schedule{Schedule::Kind::kLate};
  const auto seed = settings::read_integer(value.substr(value.find(':') + 1));
  return Schedule{Schedule::Kind::kShuffled, static_cast<std::uint64_t>(seed.value())};
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

Assumptions parse_assumptions(std::string_view text) {
  Assumptions assumed;
  const std::pair<std::string_view, double*> known[] = {{"nonzero", &assumed.nonzero},
                                                        {"unique", &assumed.unique},
                                                        {"value", &assumed.value},
                                                        {"finite", &assumed.finite}};
  for (const std::string_view item : settings::items(text)) {
    const auto [name, value] = settings::name_and_value(item);
    for (const auto& [each, number] : known)
      if (each == name) *number = settings::read_number(value).value_or(1);  // "finite" alone
  }
  return assumed;
}

double Rates::seconds(double flops, Arithmetic arithmetic, KernelKind kind) const {
  const double shares[] = {1, product, attention, attention_backward};
  const double types[] = {half, tf32, single, dbl, fp8, int8};
  return flops /
         (types[static_cast<std::size_t>(arithmetic)] * shares[static_cast<std::size_t>(kind)]);
}

Rates parse_rates(std::string_view text) {
  Rates rates;
  const std::pair<std::string_view, double*> known[] = {
      {"memory", &rates.memory},
      {"half", &rates.half},
      {"tf32", &rates.tf32},
      {"single", &rates.single},
      {"double", &rates.dbl},
      {"fp8", &rates.fp8},
      {"int8", &rates.int8},
      {"peers", &rates.peers},
      {"pageable", &rates.pageable},
      {"product", &rates.product},
      {"attention", &rates.attention},
      {"attention_backward", &rates.attention_backward},
      {"duplex", &rates.duplex},
      {"kernel", &rates.kernel},
      {"launch", &rates.launch},
      {"call", &rates.call},
      {"hop", &rates.hop},
      {"create", &rates.create},
      {"map", &rates.map},
      {"access", &rates.access},
      {"unmap", &rates.unmap},
      {"release", &rates.release},
      {"create_rate", &rates.create_rate},
      {"release_rate", &rates.release_rate}};
  for (const std::string_view item : settings::items(text)) {
    const auto [name, value] = settings::name_and_value(item);
    for (const auto& [each, rate] : known)
      if (each == name) *rate = settings::read_number(value).value_or(*rate);
  }
  return rates;
}

}  // namespace spillway::emulator
