// SPDX-License-Identifier: Apache-2.0
#include "interpose/job.h"

#include "allocator/base/env.h"
#include "allocator/base/settings.h"
#include "interpose/mode.h"
#include "interpose/next.h"
#include "interpose/own_path.h"
#include "interpose/ranges.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

namespace spillway::interpose {
namespace {

std::atomic<bool> package_has_started{false};

/// The requesting setting among those that need no Python; null: none.
const char* offload_asked_for() {
  for (const settings::Setting& each : settings::all()) {
    const std::string value = env::foreign(each.name.data()).value_or("");
    const bool is_off = value.empty() || (each.type == settings::Type::kFlag && value == "0");
    if (each.starts_job && !is_off) return each.name.data();
  }
  return nullptr;
}

/// In programs with Python, PyTorch itself starts the package.
bool has_python() {
  return plain_dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr;
}

/// The version of the LibTorch in this process ("2.11"); "" if there is none.
std::string torch_here() {
  void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return {};
  const auto version =
      reinterpret_cast<std::uint64_t (*)()>(plain_dlsym(library, "aoti_torch_abi_version"));
  dlclose(library);
  if (version == nullptr) return "of an unknown version";
  const std::uint64_t packed = version();
  return std::to_string((packed >> 56) & 0xFF) + "." + std::to_string((packed >> 48) & 0xFF);
}

#ifdef SPILLWAY_TORCH_VERSION
constexpr const char* kBuiltFor = SPILLWAY_TORCH_VERSION;
constexpr const char* kAdvice =
    ": " SPILLWAY_TORCH_SUPPORTED " are supported; build spillway for the one that runs";
#else
constexpr const char* kBuiltFor = "no version";
constexpr const char* kAdvice = "";
#endif

/// Returns the error; empty if there is none.
std::string load_and_start() {
  const std::string path = own_folder() + "/libspillway_libtorch.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc's is per thread
    return why != nullptr ? why : path + " cannot be loaded";
  }
  const auto start =
      reinterpret_cast<const char* (*)()>(plain_dlsym(library, "spillway_start_job"));
  if (start == nullptr) return path + " is of another version";
  if (const char* wrong = start(); wrong != nullptr) return wrong;
  return forward_ranges_to(library);
}

/// A job that requests offloading and runs without it must be reported.
void say_if_not_started() {
  const char* const setting = asked_for();
  if (setting == nullptr || package_has_started.load() || torch_here().empty()) return;
  std::fprintf(stderr,
               "spillway: %s is set, but PyTorch has not started spillway here, and the job goes "
               "on without it: TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps PyTorch from it, and python "
               "-I and -E find it only where it is installed\n",
               setting);
}

/// The job works with two copies, but each observes half of the calls.
void say_if_two() {
  const std::string other = asked_for() == nullptr ? "" : copy_behind();
  if (other.empty()) return;
  std::fprintf(stderr,
               "spillway: two copies of its preload library are in this process, %s and %s: take "
               "one out of LD_PRELOAD\n",
               own_path().c_str(),
               other.c_str());
}

bool start() {
  if (mode() == Mode::kPassThrough) return true;
  if (!comes_first()) return true;  // the other copy starts the job
  say_if_two();
  if (has_python()) {
    say_if_not_started();
    return true;
  }
  const std::string torch = torch_here();
  if (torch.empty()) return true;
  if (given("SPILLWAY_REPORT")) {
    std::fputs("spillway: SPILLWAY_REPORT: needs Python, which this program has not: no report\n",
               stderr);
  }
  if (offload_asked_for() == nullptr) return true;
  if (torch != kBuiltFor) {
    std::fprintf(
        stderr,
        "spillway: this build of spillway is for torch %s, but this program has torch %s%s\n",
        kBuiltFor,
        torch.c_str(),
        kAdvice);
    return env::foreign("SPILLWAY_UNSUPPORTED") == "warn";
  }
  const std::string wrong = load_and_start();
  if (wrong.empty()) return true;
  std::fprintf(stderr, "spillway: %s\n", wrong.c_str());
  return false;
}

}  // namespace

bool given(const char* setting) {
  return !env::foreign(setting).value_or("").empty();
}

const char* asked_for() {
  if (const char* const setting = offload_asked_for()) return setting;
  return given("SPILLWAY_REPORT") ? "SPILLWAY_REPORT" : nullptr;
}

void package_started() {
  package_has_started.store(true);
}

bool set_up_job() {
  enum class State : std::uint8_t { kNew, kStarting, kGoesOn, kFailed };
  static std::atomic<State> state{State::kNew};
  State now = State::kNew;
  // Queries during the set-up, including its own, are answered as without Spillway.
  if (state.compare_exchange_strong(now, State::kStarting)) {
    state = now = start() ? State::kGoesOn : State::kFailed;
  }
  return now != State::kFailed;
}

}  // namespace spillway::interpose
