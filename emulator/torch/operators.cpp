// SPDX-License-Identifier: Apache-2.0
#include "emulator/torch/operators.h"

#include "emulator/device/settings.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

namespace spillway::emulator::torch {
namespace {

#ifdef SPILLWAY_TORCH_VERSION
struct Version {
  unsigned major;
  unsigned minor;
  unsigned patch;
};

/// The version of PyTorch in this process; none if it does not report one. Queried before its other
/// functions are used, because those change between versions.
std::optional<Version> version_here() {
  void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return std::nullopt;
  const auto version =
      reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "aoti_torch_abi_version"));
  if (version == nullptr) return std::nullopt;
  const std::uint64_t packed = version();
  const auto part = [packed](unsigned shift) {
    return static_cast<unsigned>((packed >> shift) & 0xFF);
  };
  return Version{part(56), part(48), part(40)};
}

/// A library in this library's directory.
std::string path_of(const char* library) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&install_operators), &self) == 0) return {};
  const std::string path(self.dli_fname);
  return path.substr(0, path.rfind('/') + 1) + library;
}

std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

/// Why the operators cannot work in this process; empty when they have been installed.
std::string load_and_install() {
  const auto found = version_here();
  const std::string here = found ? std::to_string(found->major) + "." + std::to_string(found->minor)
                                 : std::string("of an unknown version");
  const std::string built(SPILLWAY_TORCH_VERSION);
  if (built != here) {
    return "the emulated operators are built for torch " + built + ", but this process has torch " +
           (found ? here + "." + std::to_string(found->patch) : here) +
           ": build Spillway again for it, or use torch " + built;
  }
  if (dlopen(path_of("libspillway_emulator_nvml.so").c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    return "what answers for NVML cannot be loaded: " + last_error();
  }
  const std::string path = path_of("libspillway_emulator_operators.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "the emulated operators cannot be loaded: " + last_error();
  const auto install = reinterpret_cast<int (*)()>(dlsym(library, "spillway_operators_install"));
  const auto error =
      reinterpret_cast<const char* (*)()>(dlsym(library, "spillway_operators_error"));
  if (install == nullptr || error == nullptr) {
    return path + " is of another version: build Spillway again";
  }
  return install() == 0 ? "" : error();
}
#else
std::string load_and_install() {
  return "this Spillway is built without PyTorch's operators: build it with -DSPILLWAY_TORCH=ON";
}
#endif

/// Whether PyTorch's GPU code is loaded. It may be loaded later, so the answer is not cached.
bool torch_is_here() {
  return dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY) != nullptr;
}

}  // namespace

bool install_operators() {
  enum Outcome : int { kUnknown, kDone, kFailed };

  static std::atomic<Outcome> outcome{kUnknown};
  static std::mutex one_at_a_time;
  // the installed operators may query a device themselves
  static thread_local bool installing = false;
  if (outcome.load() != kUnknown) return outcome.load() == kDone;
  if (installing || !settings().ok() || !torch_is_here()) return true;
  const std::lock_guard lock(one_at_a_time);
  if (outcome.load() == kUnknown) {
    installing = true;
    const std::string why = load_and_install();
    installing = false;
    if (!why.empty()) std::fprintf(stderr, "spillway-emulator: %s\n", why.c_str());
    outcome = why.empty() ? kDone : kFailed;
  }
  return outcome.load() == kDone;
}

}  // namespace spillway::emulator::torch
