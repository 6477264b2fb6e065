// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/functions.h"

#include <dlfcn.h>

#include <cstring>

// PyTorch looks up driver functions by opening libcuda.so.1 with a class of its own. That class is
// answered here, for that library alone: a library of that name would be found by NVIDIA's
// libraries too, and they must never meet an emulated driver.
//
// The mangled names and the two members are those of torch 2.11 to 2.15 (ATen/DynamicLibrary.h).
namespace at {

struct DynamicLibrary {
  DynamicLibrary(const char* name, const char* other_name, bool leak);
  void* sym(const char* name);

  bool leak_handle = true;
  void* handle;
};

namespace {

char emulated_driver;  // its address is the handle

/// PyTorch's own function: its libraries are not in the global scope, so they are opened by name.
template <typename Function>
Function original(const char* name) {
  static void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

DynamicLibrary::DynamicLibrary(const char* name, const char* other_name, bool leak)
    : handle(&emulated_driver) {
  if (name != nullptr && std::strncmp(name, "libcuda.so", std::strlen("libcuda.so")) == 0) return;
  using Constructor = void (*)(DynamicLibrary*, const char*, const char*, bool);
  static const auto construct = original<Constructor>("_ZN2at14DynamicLibraryC1EPKcS2_b");
  handle = nullptr;
  if (construct != nullptr) construct(this, name, other_name, leak);
}

void* DynamicLibrary::sym(const char* name) {
  constexpr int kAnyVersion = 13000;
  if (handle == &emulated_driver) return spillway::emulator::driver::look_up(name, kAnyVersion);
  using Symbol = void* (*)(DynamicLibrary*, const char*);
  static const auto find = original<Symbol>("_ZN2at14DynamicLibrary3symEPKc");
  return find == nullptr ? nullptr : find(this, name);
}

}  // namespace at
