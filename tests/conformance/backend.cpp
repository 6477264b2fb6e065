// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/backend.h"

#include <dlfcn.h>

namespace conformance {
namespace {

PFN_cuGetProcAddress_v12000 real_get_proc_address = nullptr;

/// In the place of a function that a backend lacks, so that its claims fail instead of crashing.
template <typename Function>
struct Missing;

template <typename... Arguments>
struct Missing<CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... /*unused*/) { return CUDA_ERROR_NOT_FOUND; }
};

void* find_real(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  const CUresult result =
      real_get_proc_address(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  return result == CUDA_SUCCESS ? function : nullptr;
}

Backend::Find real_lookup() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  real_get_proc_address =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  return real_get_proc_address == nullptr ? nullptr : find_real;
}

Backend::Find emulated_lookup() {
  return reinterpret_cast<Backend::Find>(dlsym(RTLD_DEFAULT, "spillway_emulator_proc_address"));
}

}  // namespace

const Driver* Backend::driver(std::string* why) {
  if (!tried_) {
    tried_ = true;
    const Find find = lookup_();
    if (find == nullptr) {
      why_ = "there is no such driver on this machine";
    } else {
#define SPILLWAY_CU(name, version)                                                       \
  driver_.name = reinterpret_cast<PFN_cu##name##_v##version>(find("cu" #name, version)); \
  if (driver_.name == nullptr) driver_.name = &Missing<PFN_cu##name##_v##version>::call;
#include "tests/conformance/functions.inc"
#undef SPILLWAY_CU
      CUcontext context = nullptr;
      int devices = 0;
      if (driver_.Init(0) != CUDA_SUCCESS) {
        why_ = "cuInit failed";
      } else if (driver_.DeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) {
        why_ = "it has no device";
      } else if (driver_.DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
        why_ = "device 0 gives no context";
      }
    }
  }
  *why = why_;
  return why_.empty() ? &driver_ : nullptr;
}

Backend& emulated() {
  static Backend backend("emulated", emulated_lookup);
  return backend;
}

Backend& real() {
  static Backend backend("real", real_lookup);
  return backend;
}

}  // namespace conformance
