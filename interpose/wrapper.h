// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/arguments.h"
#include "interpose/clock.h"
#include "interpose/counters.h"
#include "interpose/job.h"
#include "interpose/mode.h"
#include "interpose/next.h"
#include "interpose/proc_address.h"
#include "interpose/substitution.h"
#include "interpose/trace.h"

#include <cuda.h>

#include <driver_types.h>

#include <atomic>
#include <cstddef>
#include <tuple>
#include <type_traits>

namespace spillway::interpose {

/// The function that a wrapper forwards its calls to; null before the first look-up or call.
extern constinit std::array<std::atomic<void*>, kEntries> next_functions __asm__(
    "spillway_next_functions");

inline std::atomic<void*>& next_of(Entry entry) {
  return next_functions[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
}

/// Looks up the next definition, for a caller that is linked to the library. Null: there is none.
void* find_next(Entry entry);

/// Marks this thread as inside a wrapped call.
class Inside {
 public:
  Inside() { ++local.depth; }

  ~Inside() { --local.depth; }

  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

/// The direction of a copy from its argument: a kind, or a description if it may be read.
template <typename Value>
Kind direction(const Value& value, bool readable, Kind otherwise) {
  if constexpr (std::is_same_v<Value, cudaMemcpyKind>) {
    if (value == cudaMemcpyHostToDevice) return Kind::kCopyIn;
    if (value == cudaMemcpyDeviceToHost) return Kind::kCopyOut;
  } else if constexpr (requires { value->srcMemoryType; }) {
    if (!readable) return otherwise;
    const bool from_host = value->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool to_host = value->dstMemoryType == CU_MEMORYTYPE_HOST;
    if (from_host && value->dstMemoryType == CU_MEMORYTYPE_DEVICE) return Kind::kCopyIn;
    if (to_host && value->srcMemoryType == CU_MEMORYTYPE_DEVICE) return Kind::kCopyOut;
  } else if constexpr (requires { value->extent, value->kind; }) {
    if (readable) return direction(value->kind, true, otherwise);
  }
  return otherwise;
}

template <typename Tuple>
Kind kind_of(Entry entry, const Tuple& arguments, bool readable) {
  Kind kind = function_of(entry).kind;
  if (kind != Kind::kCopy) return kind;
  const auto look = [&](const auto&... each) {
    ((kind = direction(each, readable, kind)), ...);
  };
  std::apply(look, arguments);
  return kind;
}

/// Whether a call of this kind creates an object that another call destroys.
constexpr bool makes(Kind kind) {
  return kind == Kind::kAllocate || kind == Kind::kHostAllocate || kind == Kind::kHostRegister ||
         kind == Kind::kCreate || kind == Kind::kRetain || kind == Kind::kReserve ||
         kind == Kind::kMap || kind == Kind::kPoolCreate || kind == Kind::kStreamCreate ||
         kind == Kind::kEventCreate || kind == Kind::kGraphCreate ||
         kind == Kind::kGraphInstantiate || kind == Kind::kIpcOpen;
}

/// One wrapped function: forwards the call, and counts or records it if the program itself made it.
template <Entry kEntry, typename Address, typename Bytes, typename Stream, typename Function>
struct Wrapper;

template <Entry kEntry,
          typename Address,
          typename Bytes,
          typename Stream,
          typename Result,
          typename... Arguments>
struct Wrapper<kEntry, Address, Bytes, Stream, Result(Arguments...)> {
  using Tuple = std::tuple<Arguments...>;
  using Next = Result(Arguments...);
  static constexpr Kind kKind = function_of(kEntry).kind;
  /// 302 in both libraries: a CUDA function that the process lacks.
  static constexpr auto kMissing = static_cast<Result>(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);

  static Result call(Arguments... arguments) {
    void* found = next_of(kEntry).load(std::memory_order_relaxed);
    if (found == nullptr) [[unlikely]] {
      found = find_next(kEntry);
      if (found == nullptr) return kMissing;
    }
    auto* next = reinterpret_cast<Next*>(found);
    if constexpr (kEntry == Entry::k_cudaGetDeviceCount) {
      if (!set_up_job()) return cudaErrorSystemNotReady;
    }
    if constexpr (kKind == Kind::kLookUp) return look_up(next, arguments...);
    if constexpr (may_be_served(kEntry)) {
      if (local.depth == 0 && substituting()) [[unlikely]]
        return serve(next, arguments...);
    }
    const Mode now = mode();
    if (now == Mode::kPassThrough || local.depth != 0) return next(arguments...);
    return observe(now, next, arguments...);
  }

  static Result observe(Mode now, Next* next, Arguments... arguments) {
    const bool record = now == Mode::kRecord;
    const std::uint64_t begun = when<false>(record);
    const Result result = [&] {
      const Inside inside;
      return next(arguments...);
    }();
    const std::uint64_t ended = when<true>(record);
    report(record, makes(kKind) ? ended : begun, result, Tuple(arguments...));
    return result;
  }

  /// The time of a recorded call, before or after it, by its kind; 0 otherwise. A created object
  /// exists at the end of the call; until then another thread may free an object with the same
  /// address.
  template <bool kBehind>
  static std::uint64_t when(bool record) {
    return makes(kKind) == kBehind && record && needs_moment() ? ticks() : 0;
  }

  /// Reading the clock costs as much as several calls, and launches follow each other closely.
  static bool needs_moment() {
    return kKind != Kind::kLaunch || local.counters == nullptr ||
           local.counters->ring.needs_moment();
  }

  static std::uint64_t stream_of(const Tuple& arguments) {
    const std::uint64_t stream = Stream::of(arguments);
    if constexpr (function_of(kEntry).per_thread && !std::is_same_v<Stream, arguments::None>) {
      if (stream == 0) return arguments::number(CU_STREAM_PER_THREAD);
    }
    return stream;
  }

  static void report(bool record, std::uint64_t when, Result result, const Tuple& arguments) {
    ThreadCounters* counters = local.counters != nullptr ? local.counters : my_counters();
    if (counters == nullptr) return;
    const bool good = static_cast<int>(result) == 0;
    const std::uint64_t bytes = good || !Bytes::kReads ? Bytes::of(arguments) : 0;
    if constexpr (std::is_same_v<Bytes, arguments::None>) {
      counters->of(kEntry).calls_only();
    } else {
      counters->of(kEntry).add(bytes);
    }
    if (Event* slot = record ? trace_slot(*counters) : nullptr; slot != nullptr) {
      slot->ticks = when;
      slot->address = good || !Address::kReads ? Address::of(arguments) : 0;
      slot->bytes = bytes;
      slot->stream = good || !Stream::kReads ? stream_of(arguments) : 0;
      slot->entry = static_cast<std::uint16_t>(kEntry);
      slot->kind = static_cast<std::uint16_t>(kind_of(kEntry, arguments, good));
      slot->result = static_cast<std::int32_t>(result);
      counters->ring.publish();
    }
    if constexpr (kKind == Kind::kCaptureBegin) {
      if (good) note_capture_begin();
    }
    if constexpr (kKind == Kind::kCaptureEnd) note_capture_end(static_cast<int>(result));
    if (!good && is_sticky(static_cast<int>(result))) [[unlikely]]
      stop(Stop::kStickyError);
  }

  /// Makes the runtime fail too, because nothing else sets the result of cudaGetLastError and
  /// cudaPeekAtLastError. Returns the call's error: the runtime's if it has one.
  static Result record_error(Next* next, Result error, Arguments... arguments) {
    if constexpr (function_of(kEntry).library == Library::kRuntime) {
      const Inside inside;
      if constexpr (kKind == Kind::kAllocate) {
        constexpr std::size_t kMoreThanAnyDevice = std::size_t{1} << 46U;
        static_assert(std::is_same_v<Tuple, std::tuple<void**, std::size_t>>);
        void* nothing = nullptr;
        next(&nothing, kMoreThanAnyDevice);
      } else if (const Result own = next(arguments...); own != Result{}) {
        return own;
      }
    }
    return error;
  }

  /// Serves the call from our heap if possible, and counts it like any other.
  static Result serve(Next* next, Arguments... arguments) {
    const Tuple all(arguments...);
    const bool record = mode() == Mode::kRecord;
    const std::uint64_t begun = when<false>(record);
    int result = 0;
    const bool served = [&] {
      const Inside inside;
      return served_from_heap<kEntry>(all, result);
    }();
    if (!served) {
      const Mode now = mode();
      return now == Mode::kPassThrough ? next(arguments...) : observe(now, next, arguments...);
    }
    const Result answer =
        result == 0 ? Result{} : record_error(next, static_cast<Result>(result), arguments...);
    const std::uint64_t ended = when<true>(record);
    if (mode() != Mode::kPassThrough) report(record, makes(kKind) ? ended : begun, answer, all);
    return answer;
  }

  /// Forwards a look-up, and replaces the result by a wrapper.
  static Result look_up(Next* next, Arguments... arguments) {
    const Result result = [&] {
      const Inside inside;
      return next(arguments...);
    }();
    if (mode() != Mode::kPassThrough) {
      if (static_cast<int>(result) == 0) wrap_found(arguments...);
      if (local.depth == 0) {
        if (ThreadCounters* counters = my_counters(); counters != nullptr)
          counters->of(kEntry).add(0);
      }
    }
    return result;
  }
};

}  // namespace spillway::interpose
