// SPDX-License-Identifier: Apache-2.0
#include "interpose/next.h"

#include <dlfcn.h>

#include <array>

namespace spillway::interpose {

void* next_definition(const char* name) {
  if (void* found = dlsym(RTLD_NEXT, name); found != nullptr) return found;
  // A runtime that was loaded with RTLD_LOCAL, as Python extensions are, is not behind us in the
  // search order.
  constexpr std::array<const char*, 3> kRuntimes = {
      "libcudart.so.13", "libcudart.so.12", "libcudart.so"};
  for (const char* library : kRuntimes) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* found = dlsym(handle, name);
    dlclose(handle);  // gives back our reference only: whoever loaded the runtime keeps it
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace spillway::interpose
