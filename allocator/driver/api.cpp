// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/api.h"

#include "allocator/base/env.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/progress.h"

#include <dlfcn.h>

#include <thread>

namespace spillway::driver {
namespace {

PFN_cuGetProcAddress_v12000 real_get_proc_address() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
}

void* real_lookup(const char* name, int version) {
  static const auto get = real_get_proc_address();
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (get == nullptr ||
      get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS) {
    return nullptr;
  }
  return function;
}

void* emulated_lookup(const char* name, int version) {
  using Lookup = void* (*)(const char*, int);
  static const auto lookup =
      reinterpret_cast<Lookup>(dlsym(RTLD_DEFAULT, "spillway_emulator_proc_address"));
  return lookup == nullptr ? nullptr : lookup(name, version);
}

progress::Report checker_function(const char* name) {
  return reinterpret_cast<progress::Report>(dlsym(RTLD_DEFAULT, name));
}

Result<const Api*> load_once() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto emulate, env::flag("SPILLWAY_EMULATE"));
  SPILLWAY_ASSIGN_OR_RETURN(Api table, load(emulate ? emulated_lookup : real_lookup));
  const auto* api = new Api(table);  // never freed: used until the process ends
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*api, Init, 0));  // NOLINT(*NewDeleteLeaks): see above
  if (tags_are_reported()) {
    progress::releases = checker_function("spillway_emulator_thread_releases");
    progress::acquires = checker_function("spillway_emulator_thread_acquires");
  }
  return api;
}

}  // namespace

Result<Api> load(Lookup lookup) {
  Api api;
#define SPILLWAY_CU(name, version)                                                              \
  api.name = reinterpret_cast<PFN_cu##name##_v##version>(lookup("cu" #name, version));          \
  if (api.name == nullptr) {                                                                    \
    return SPILLWAY_ERROR(Code::kNoDriver,                                                      \
                          "cu" #name                                                            \
                          " was not found. Install an NVIDIA driver, or, without a GPU, start " \
                          "the program with `spillway emulate`.");                              \
  }
#define SPILLWAY_CU_OPTIONAL(name, version) \
  api.name = reinterpret_cast<PFN_cu##name##_v##version>(lookup("cu" #name, version));
#include "allocator/driver/symbols.inc"
#undef SPILLWAY_CU
  return api;
}

Result<const Api*> api() {
  static const Result<const Api*> loaded = load_once();
  return loaded;
}

bool emulated() {
  static const bool on = [] {
    const auto flag = env::flag("SPILLWAY_EMULATE");
    return flag.ok() && flag.value();
  }();
  return on;
}

bool moves_no_bytes() {
  using Ask = int (*)();
  static const auto ask =
      reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "spillway_emulator_shape_only"));
  return emulated() && ask != nullptr && ask() != 0;
}

void sleep_for(std::chrono::microseconds duration) {
  using Sleep = int (*)(double);
  static const auto emulated_sleep =
      reinterpret_cast<Sleep>(dlsym(RTLD_DEFAULT, "spillway_emulator_sleep"));
  const std::chrono::duration<double> seconds = duration;
  if (emulated() && emulated_sleep != nullptr && emulated_sleep(seconds.count()) != 0) return;
  count_sleep();
  std::this_thread::sleep_for(duration);
}

void describe_addresses(const char* (*describe)(std::uintptr_t at)) {
  using Set = void (*)(const char* (*)(std::uintptr_t));
  const auto set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "spillway_emulator_describe_addresses"));
  if (emulated() && set != nullptr) set(describe);
}

bool tags_are_reported() {
  using Ask = int (*)();
  const auto checks = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "spillway_emulator_checks"));
  return emulated() && checks != nullptr && checks() != 0;
}

void announce_tag(const std::string& name) {
  using SetTag = void (*)(const char*);
  static const auto set_tag =
      reinterpret_cast<SetTag>(dlsym(RTLD_DEFAULT, "spillway_emulator_tag"));
  if (set_tag != nullptr) set_tag(name.empty() ? nullptr : name.c_str());
}

Status failure(const Api& api, CUresult result, const char* call, const char* file, int line) {
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown CUresult";
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return {Code::kOutOfDeviceMemory, std::string(call) + ": " + name, file, line};
  }
  return Status::driver(static_cast<int>(result), name, call, file, line);
}

}  // namespace spillway::driver
