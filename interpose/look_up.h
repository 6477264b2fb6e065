// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// What our dlsym answers itself. It is returned in registers.
struct Answer {
  bool ours;     ///< false: the call goes on to the next dlsym as it came
  void* result;  ///< what dlsym returns
};

}  // namespace spillway::interpose

// Called by look_up_entry.cpp's assembly, which keeps the registers of the call.
extern "C" {

/// For a name that begins with "cu". `version` is null for dlsym; `caller` is the address that the
/// call returns to. Threads: safe; neither locks of ours nor memory.
spillway::interpose::Answer spillway_look_up(void* handle,
                                             const char* name,
                                             const char* version,
                                             const void* caller);

/// Fills spillway_next_dlsym and spillway_next_dlvsym: the next definitions after ours.
void spillway_find_next_look_ups();

extern void* spillway_next_dlsym;   // NOLINT: written once, before it is jumped through
extern void* spillway_next_dlvsym;  // NOLINT: as above
}
