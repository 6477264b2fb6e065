// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

namespace spillway {

/// Installs them, once; false where that failed. PyTorch's autoload does it for Python programs,
/// which have all of PyTorch.
inline bool emulated_operators() {
  static const bool installed = [] {
    if (dlopen("libtorch.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return false;
    void* const library = dlopen(SPILLWAY_OPERATORS, RTLD_NOW);
    if (library == nullptr) return false;
    const auto install = reinterpret_cast<int (*)()>(dlsym(library, "spillway_operators_install"));
    return install != nullptr && install() == 0;
  }();
  return installed;
}

}  // namespace spillway
