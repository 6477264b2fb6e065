// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/probe.h"

#include <dlfcn.h>

namespace spillway::micro {
namespace {

void* find(const char* name, int version) {
  if (driver::emulated()) {
    using Lookup = void* (*)(const char*, int);
    const auto lookup =
        reinterpret_cast<Lookup>(dlsym(RTLD_DEFAULT, "spillway_emulator_proc_address"));
    return lookup == nullptr ? nullptr : lookup(name, version);
  }
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (get == nullptr) return nullptr;
  if (get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS)
    return nullptr;
  return function;
}

}  // namespace

Result<std::unique_ptr<Probe>> Probe::open() {
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Api* api, driver::api());
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Device device, driver::Device::open(*api, DeviceId{0}));
  std::unique_ptr<Probe> probe(new Probe(device));
#define SPILLWAY_CU(name, version) \
  probe->extra_.name = reinterpret_cast<PFN_cu##name##_v##version>(find("cu" #name, version));
#include "bench/micro/symbols.inc"
#undef SPILLWAY_CU
  if (!driver::emulated()) {
    char name[128] = "";
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(*probe, DeviceGetName, name, sizeof name, 0));
    probe->name_ = name;
  }
  return probe;
}

Status Probe::load(const std::string& image, std::span<const char* const> names) {
  CUmodule module = nullptr;  // never unloaded: the process ends with the measurements
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(*this, ModuleLoadData, &module, image.c_str()));
  for (const char* name : names) {
    CUfunction function = nullptr;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL_EXTRA(*this, ModuleGetFunction, &function, module, name));
    functions_[name] = function;
  }
  return {};
}

Status Probe::launch(std::string_view name,
                     CUstream stream,
                     const Blocks& blocks,
                     unsigned threads,
                     std::vector<void*> arguments) {
  const CUfunction function = functions_.find(name)->second;
  return SPILLWAY_CALL_EXTRA(*this,
                             LaunchKernel,
                             function,
                             blocks.x,
                             blocks.y,
                             1,
                             threads,
                             1,
                             1,
                             0,
                             stream,
                             arguments.data(),
                             nullptr);
}

Status Probe::finish_sync(CUstream stream) const {
  return SPILLWAY_CALL(api(), StreamSynchronize, stream);
}

Seconds host_time(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begun;
}

Seconds time_of_calls(const std::function<void()>& work) {
  const auto is_virtual =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "spillway_emulator_clock_is_virtual"));
  const auto now_ms =
      reinterpret_cast<double (*)()>(dlsym(RTLD_DEFAULT, "spillway_emulator_now_ms"));
  const bool modeled =
      driver::emulated() && is_virtual != nullptr && is_virtual() != 0 && now_ms != nullptr;
  if (!modeled) return host_time(work);
  const double begun = now_ms();
  work();
  return std::chrono::duration<double, std::milli>(now_ms() - begun);
}

}  // namespace spillway::micro
