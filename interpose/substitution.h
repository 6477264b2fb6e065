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
  return entry == Entry::k_cuMemAlloc_v2 || entry == Entry::k_cuMemFree_v2 ||
         entry == Entry::k_cuIpcGetMemHandle || entry == Entry::k_cudaMalloc ||
         entry == Entry::k_cudaFree || entry == Entry::k_cudaIpcGetMemHandle;
}

/// Reads SPILLWAY_PRELOAD=substitute's conditions; called once, from the constructor.
void allow_substitution();

/// Forgets the heap in a forked child, which must not touch it.
void forget_substitution();

/// Why the last call that could have been served was not, or why none will be; "" if neither.
/// Threads: safe; the text stays.
const char* substitution_refusal();

/// A capture of the program's has begun or ended: its memory must be the driver's.
void note_capture(bool begins);

/// Each serves one call from our heap; false: the next definition must do it. `result` is the
/// call's, a number of CUDA. Threads: safe.
bool serve_allocate(Library library, void** out, std::size_t bytes, int& result);
bool serve_free(Library library, void* at, int& result);
bool serve_ipc(const void* at, int& result);

template <typename Tuple>
bool served_from_heap(Entry entry, const Tuple& arguments, int& result) {
  const Library library = function_of(entry).library;
  const auto pointer = [](auto value) {
    return reinterpret_cast<void*>(value);
  };
  if constexpr (std::tuple_size_v<Tuple> == 1) {  // the frees
    return serve_free(library, pointer(std::get<0>(arguments)), result);
  } else if constexpr (std::is_integral_v<std::tuple_element_t<1, Tuple>>) {
    if (function_of(entry).kind == Kind::kIpcGet) {
      return serve_ipc(pointer(std::get<1>(arguments)), result);
    }
    return serve_allocate(
        library, reinterpret_cast<void**>(std::get<0>(arguments)), std::get<1>(arguments), result);
  } else {
    return serve_ipc(std::get<1>(arguments), result);
  }
}

}  // namespace spillway::interpose
