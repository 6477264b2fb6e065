// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

namespace spillway::interpose {

/// Whether calls may be served from our heap: SPILLWAY_PRELOAD=substitute, and either nothing
/// speaks against it or something was served before.
extern constinit std::atomic<bool> substituting_now;

inline bool substituting() {
  return substituting_now.load(std::memory_order_relaxed);
}

constexpr bool may_be_served(Entry entry) {
  switch (entry) {
    case Entry::k_cuMemAlloc_v2:
    case Entry::k_cuMemFree_v2:
    case Entry::k_cuMemFreeAsync:
    case Entry::k_cuMemFreeAsync_ptsz:
    case Entry::k_cuIpcGetMemHandle:
    case Entry::k_cudaMalloc:
    case Entry::k_cudaFree:
    case Entry::k_cudaFreeAsync:
    case Entry::k_cudaFreeAsync_ptsz:
    case Entry::k_cudaIpcGetMemHandle:
      return true;
    default:
      return false;
  }
}

/// Reads SPILLWAY_PRELOAD=substitute's conditions; called once, from the constructor.
void allow_substitution();

/// Forgets the heap in a forked child, which must not touch it.
void forget_substitution();

/// Why the last call that could have been served was not, or why none will be; "" if neither.
/// Threads: safe; the text stays.
const char* substitution_refusal();

/// A capture of the program's has begun: until its end memory must be the driver's.
void note_capture_begin();

/// A call that ends a capture has returned `result`, with which the capture has ended or goes on.
void note_capture_end(int result);

/// Each serves one call from our heap; false: the next definition must do it. `result` is the
/// call's, a number of CUDA. Threads: safe.
bool serve_allocate(Library library, void** out, std::size_t bytes, int& result);
bool serve_free(Library library, void* at, int& result);
bool serve_ipc(const void* at, int& result);

template <Entry kEntry, typename Tuple>
bool served_from_heap(const Tuple& arguments, int& result) {
  constexpr Library kLibrary = function_of(kEntry).library;
  constexpr Kind kKind = function_of(kEntry).kind;
  if constexpr (kKind == Kind::kAllocate) {
    auto** out = reinterpret_cast<void**>(std::get<0>(arguments));
    return serve_allocate(kLibrary, out, std::get<1>(arguments), result);
  } else if constexpr (kKind == Kind::kFree) {
    return serve_free(kLibrary, reinterpret_cast<void*>(std::get<0>(arguments)), result);
  } else {
    return serve_ipc(reinterpret_cast<const void*>(std::get<1>(arguments)), result);
  }
}

}  // namespace spillway::interpose
