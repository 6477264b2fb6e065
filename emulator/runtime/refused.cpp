// SPDX-License-Identifier: Apache-2.0
// Each function is an error with its name, regardless of its arguments. This file must not include
// CUDA's declarations, which have the arguments.
#include "emulator/runtime/refused.h"

#define SPILLWAY_REFUSED(name)                                                                  \
  extern "C" int name() {                                                                       \
    return spillway::emulator::runtime::refuse_call(spillway::emulator::counter<#name>, #name); \
  }
#include "emulator/runtime/refused.inc"
#undef SPILLWAY_REFUSED
