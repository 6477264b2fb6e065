// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

namespace spillway::interpose {

/// Whether our heap may serve calls: SPILLWAY_PRELOAD=substitute, and either no condition forbids
/// it or a call was already served.
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

/// Checks the conditions of SPILLWAY_PRELOAD=substitute; called once, by the constructor.
void allow_substitution();

/// Drops the heap in a forked child, which must not use it.
void forget_substitution();

/// Why the last eligible call was not served, or why none will be; "" if neither.
/// Threads: safe; the text stays valid.
const char* substitution_refusal();

/// A capture of the program has begun: until its end the driver must supply memory.
void note_capture_begin();

/// A call that ends a capture has returned `result`, by which the capture has ended or continues.
void note_capture_end(int result);

/// Each serves one call from our heap; false: the next definition must serve it. `result` is the
/// call's CUDA result.
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
