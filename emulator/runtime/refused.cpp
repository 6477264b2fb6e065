// SPDX-License-Identifier: Apache-2.0
// Each is an error with its name, whatever its arguments: this file must not see CUDA's
// declarations, which have them.
#include "emulator/runtime/refused.h"

#define SPILLWAY_REFUSED(name)                                                                  \
  extern "C" int name() {                                                                       \
    return spillway::emulator::runtime::refuse_call(spillway::emulator::counter<#name>, #name); \
  }
#include "emulator/runtime/refused.inc"
#undef SPILLWAY_REFUSED
