// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/faults.h"

#include "allocator/base/mutex.h"
#include "emulator/device/errors.h"
#include "emulator/emulator.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace spillway::emulator {

constinit std::atomic<bool> faults_set{false};

namespace {

struct Fault {
  std::string function;
  std::uint64_t from = 0;  // the first call is 1
  bool later_too = false;
  CUresult error = CUDA_SUCCESS;
  std::uint64_t calls = 0;
};

using Faults = std::vector<Fault>;

constinit Mutex mutex;

Faults& current() {
  static auto* faults = new Faults;  // never destroyed: programs call CUDA while the process ends
  return *faults;
}

/// This library's handle: its own functions are looked up in it, even if another library exports
/// the name.
void* this_library() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(&check_faults), &found) == 0) return nullptr;
  return dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

bool is_function(const std::string& name) {
  if (!name.starts_with("cu") || name.find('_') != std::string::npos) return false;
  constexpr int kNewest = std::numeric_limits<int>::max();
  if (spillway_emulator_proc_address(name.c_str(), kNewest) != nullptr) return true;
  static void* const library = this_library();
  return library != nullptr && dlsym(library, name.c_str()) != nullptr;
}

template <typename Number>
bool read_number(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string lower_name(const ErrorText& error) {
  constexpr std::string_view kPrefix = "CUDA_ERROR_";
  std::string name(error.driver_name);
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  std::transform(name.begin(), name.end(), name.begin(), [](char each) {
    return each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each;
  });
  return name;
}

/// CUDA_SUCCESS if there is no such error.
CUresult error_of(std::string_view text) {
  constexpr int kMax = 999;
  int number = 0;
  if (read_number(text, &number)) {
    const bool known = number > 0 && number <= kMax && error_text(number) != nullptr;
    return known ? static_cast<CUresult>(number) : CUDA_SUCCESS;
  }
  for (number = 1; number <= kMax; ++number) {
    const ErrorText* known = error_text(number);
    if (known != nullptr && lower_name(*known) == text) return static_cast<CUresult>(number);
  }
  return CUDA_SUCCESS;
}

Result<Fault> parse_one(std::string_view entry) {
  const auto bad = [&](std::string_view expected) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "fault \"" + std::string(entry) + "\": expected " + std::string(expected));
  };
  const std::size_t colon = entry.find(':');
  const std::size_t equals = entry.find('=');
  if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon) {
    return bad("function:n=error or function:n+=error, such as cuMemCreate:3=out_of_memory");
  }
  Fault fault;
  fault.function = entry.substr(0, colon);
  if (!is_function(fault.function)) {
    return bad("the name of an emulated driver or runtime function before the colon");
  }
  std::string_view from = entry.substr(colon + 1, equals - colon - 1);
  fault.later_too = from.ends_with('+');
  if (fault.later_too) from.remove_suffix(1);
  if (!read_number(from, &fault.from) || fault.from == 0) {
    return bad("the number of a call, from 1, after the colon");
  }
  fault.error = error_of(entry.substr(equals + 1));
  if (fault.error == CUDA_SUCCESS) {
    return bad("an error after \"=\", such as out_of_memory, illegal_address or 719");
  }
  return fault;
}

Result<Faults> parse(std::string_view spec) {
  Faults faults;
  while (!spec.empty()) {
    const std::size_t comma = std::min(spec.find(','), spec.size());
    SPILLWAY_ASSIGN_OR_RETURN(Fault fault, parse_one(spec.substr(0, comma)));
    faults.push_back(std::move(fault));
    spec.remove_prefix(std::min(comma + 1, spec.size()));
  }
  return faults;
}

}  // namespace

Status check_faults(std::string_view spec) {
  return parse(spec).status();
}

Status set_faults(std::string_view spec) {
  SPILLWAY_ASSIGN_OR_RETURN(Faults faults, parse(spec));
  const Lock lock(mutex);
  current() = std::move(faults);
  faults_set.store(!current().empty());
  return {};
}

CUresult next_fault(const char* function) {
  const Lock lock(mutex);
  CUresult error = CUDA_SUCCESS;
  for (Fault& fault : current()) {
    if (fault.function != function) continue;
    const std::uint64_t call = ++fault.calls;
    const bool fails = call == fault.from || (fault.later_too && call > fault.from);
    if (fails && error == CUDA_SUCCESS) error = fault.error;
  }
  return error;
}

}  // namespace spillway::emulator
