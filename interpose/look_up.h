// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// The answer of our dlsym, returned in registers.
struct Answer {
  bool ours;     ///< false: the call is forwarded unchanged to the next dlsym
  void* result;  ///< result of dlsym
};

}  // namespace spillway::interpose

// Called by look_up_entry.cpp's assembly, which preserves the registers of the call.
extern "C" {

/// For a name that begins with "cu". `version` is null for dlsym; `caller` is the return address of
/// the call.
/// Threads: safe; takes no lock and allocates no memory.
spillway::interpose::Answer spillway_look_up(void* handle,
                                             const char* name,
                                             const char* version,
                                             const void* caller);

/// Sets spillway_next_dlsym and spillway_next_dlvsym to the next definitions after ours.
void spillway_find_next_look_ups();

extern void* spillway_next_dlsym;   // NOLINT: written once, before it is jumped through
extern void* spillway_next_dlvsym;  // NOLINT: as above
}
