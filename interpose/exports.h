// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

namespace spillway::interpose {

/// The address of our exported function of this name: the one that the program's other objects bind
/// to, and that look-ups give.
void* exported(Entry entry);

}  // namespace spillway::interpose
