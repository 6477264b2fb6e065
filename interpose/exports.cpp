// SPDX-License-Identifier: Apache-2.0
#include "interpose/exports.h"

// All declarations of cuda.h, including those that its macros hide.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: NVIDIA's name
#include "interpose/wrapper.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

// Programs still call functions that CUDA deprecates.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

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

// The function that cuGetProcAddress finds for a name and version, also declared in NVIDIA's
// headers.
#define SPILLWAY_DRIVER_AS(symbol, base, version, suffix, ...) \
  static_assert(std::is_same_v<PFN_##base##_v##version##suffix, decltype(&::symbol)>, #symbol);
#define SPILLWAY_RUNTIME(...)
#include "interpose/functions.inc"

}  // namespace

// The runtime's functions for the thread's own default stream, which its header declares for
// programs compiled for them only.
#define SPILLWAY_DRIVER(...)
#define SPILLWAY_RUNTIME_AS(symbol, base, ...) extern "C" decltype(::base) symbol;
#include "interpose/functions.inc"

// The jump targets of the exported functions, under names that assembly can use.
#define SPILLWAY_WRAPPER(symbol, ...)                             \
  extern "C" decltype(::symbol)* const spillway_wrapper_##symbol; \
  decltype(::symbol)* const spillway_wrapper_##symbol =           \
      &Wrapper<Entry::k_##symbol, __VA_ARGS__, decltype(::symbol)>::call;
#define SPILLWAY_DRIVER(symbol, base, version, kind, ...) SPILLWAY_WRAPPER(symbol, __VA_ARGS__)
#define SPILLWAY_RUNTIME(symbol, kind, ...) SPILLWAY_WRAPPER(symbol, __VA_ARGS__)
#include "interpose/functions.inc"

// Counts a driver launch before its wrapper is reached. The driver calls no function of ours within
// it, and sticky errors appear elsewhere, so nothing must run after it. In assembly, because a
// compiler copies arguments on the stack, and a launch has up to eleven.
#define SPILLWAY_QUICK                                          \
  "cmpb $1, spillway_mode_now(%rip)\n"                          \
  "jne 1f\n"                                                    \
  "movq spillway_local@gottpoff(%rip), %rax\n"                  \
  "cmpl $0, %fs:(%rax)\n"                                       \
  "jne 1f\n"                                                    \
  "movq %fs:8(%rax), %rax\n"                                    \
  "testq %rax, %rax\n"                                          \
  "je 1f\n"                                                     \
  "movq spillway_next_functions+8*spillway_index(%rip), %r11\n" \
  "testq %r11, %r11\n"                                          \
  "je 1f\n"                                                     \
  "addq $1, 16*spillway_index(%rax)\n"                          \
  "jmp *%r11\n"                                                 \
  "1:\n"

// Assumptions of that code.
static_assert(static_cast<int>(Mode::kCount) == 1 && sizeof(mode_now) == 1);
static_assert(offsetof(Local, depth) == 0 && sizeof(Local::depth) == 4);
static_assert(offsetof(Local, counters) == 8 && offsetof(ThreadCounters, counts) == 0);
static_assert(offsetof(Count, calls) == 0 && sizeof(Count) == 16);
static_assert(sizeof(next_functions) == kEntries * 8);

// The export form of a kind, as SPILLWAY_HOW(kLaunch): usually the jump alone.
#define SPILLWAY_HOW_kLaunch , "spillway_export_quick "
#define SPILLWAY_HOW_kGraphLaunch , "spillway_export_quick "
#define SPILLWAY_SECOND(first, second, ...) second
#define SPILLWAY_CHOOSE(...) SPILLWAY_SECOND(__VA_ARGS__)
#define SPILLWAY_HOW(kind) SPILLWAY_CHOOSE(SPILLWAY_HOW_##kind, "spillway_export ", )

// One function per name, with one address: an indirect jump, which preserves all arguments, however
// many. An assembler macro, because the expanded text exceeds the limit of a string.
#define SPILLWAY_EXPORT_MACRO(name, before)   \
  ".macro " #name                             \
  " symbol\n"                                 \
  ".globl \\symbol\n"                         \
  ".type \\symbol, @function\n"               \
  ".p2align 4\n"                              \
  "\\symbol:\n" before                        \
  "jmp *spillway_wrapper_\\symbol(%rip)\n"    \
  ".size \\symbol, .-\\symbol\n"              \
  ".set spillway_index, spillway_index + 1\n" \
  ".endm\n"

// In one piece: spillway_index is the row's index in the lists.
#define SPILLWAY_DRIVER(symbol, base, version, kind, ...) SPILLWAY_HOW(kind) #symbol "\n"
#define SPILLWAY_RUNTIME(symbol, ...) "spillway_export " #symbol "\n"
__asm__(
    ".pushsection .text\n"
    ".set spillway_index, 0\n" SPILLWAY_EXPORT_MACRO(spillway_export, "")
        SPILLWAY_EXPORT_MACRO(spillway_export_quick, SPILLWAY_QUICK)
#include "interpose/functions.inc"
            ".purgem spillway_export\n"
            ".purgem spillway_export_quick\n"
            ".popsection\n");

void* exported(Entry entry) {
  static const std::array<void*, kEntries> functions = {{
#define SPILLWAY_DRIVER(symbol, ...) reinterpret_cast<void*>(&::symbol),
#define SPILLWAY_RUNTIME(symbol, ...) reinterpret_cast<void*>(&::symbol),
#include "interpose/functions.inc"
  }};
  return functions[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
}

}  // namespace spillway::interpose
