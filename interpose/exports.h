// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

namespace spillway::interpose {

/// The address of our exported function of this name. Other objects of the program bind to it, and
/// look-ups return it.
void* exported(Entry entry);

}  // namespace spillway::interpose
