// SPDX-License-Identifier: Apache-2.0
#include "interpose/exports.h"

// All declarations of cuda.h, also those that its macros hide.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: NVIDIA's name
#include "interpose/wrapper.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <type_traits>

namespace spillway::interpose {

constinit std::array<std::atomic<void*>, kEntries> next_functions{};

void* find_next(Entry entry) {
  void* found = next_definition(entry);
  void* none = nullptr;
  std::atomic<void*>& next = next_of(entry);
  if (found == nullptr || next.compare_exchange_strong(none, found)) return found;
  return none;  // another thread was first
}

namespace {

using namespace arguments;  // NOLINT(google-build-using-namespace): the lists' words

// A row says what cuGetProcAddress gives for a name and version. NVIDIA's headers say it too.
#define SPILLWAY_DRIVER_AS(symbol, base, version, suffix, ...) \
  static_assert(std::is_same_v<PFN_##base##_v##version##suffix, decltype(&::symbol)>, #symbol);
#define SPILLWAY_RUNTIME(...)
#include "interpose/functions.inc"

}  // namespace

// What the exported functions jump to, under names that assembly can use.
#define SPILLWAY_WRAPPER(symbol, ...)                             \
  extern "C" decltype(::symbol)* const spillway_wrapper_##symbol; \
  decltype(::symbol)* const spillway_wrapper_##symbol =           \
      &Wrapper<Entry::k_##symbol, __VA_ARGS__, decltype(::symbol)>::call;
#define SPILLWAY_DRIVER(symbol, base, version, kind, ...) SPILLWAY_WRAPPER(symbol, __VA_ARGS__)
#define SPILLWAY_RUNTIME(symbol, kind, ...) SPILLWAY_WRAPPER(symbol, __VA_ARGS__)
#include "interpose/functions.inc"

// One function of each name, with one address: an indirect jump, which leaves all arguments as they
// are, however many.
#define SPILLWAY_EXPORT(symbol)                                    \
  __asm__(".pushsection .text\n.globl " #symbol "\n.type " #symbol \
          ", @function\n.p2align 4\n" #symbol                      \
          ":\n"                                                    \
          "jmp *spillway_wrapper_" #symbol                         \
          "(%rip)\n"                                               \
          ".size " #symbol ", .-" #symbol "\n.popsection");
#define SPILLWAY_DRIVER(symbol, ...) SPILLWAY_EXPORT(symbol)
#define SPILLWAY_RUNTIME(symbol, ...) SPILLWAY_EXPORT(symbol)
#include "interpose/functions.inc"

void* exported(Entry entry) {
  static const std::array<void*, kEntries> functions = {{
#define SPILLWAY_DRIVER(symbol, ...) reinterpret_cast<void*>(&::symbol),
#define SPILLWAY_RUNTIME(symbol, ...) reinterpret_cast<void*>(&::symbol),
#include "interpose/functions.inc"
  }};
  return functions[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
}

}  // namespace spillway::interpose
