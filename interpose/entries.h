// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway::interpose {

/// The kind of a call, for counts and traces.
enum class Kind : std::uint16_t {
  kAllocate,
  kFree,
  kHostAllocate,
  kHostFree,
  kHostRegister,
  kHostUnregister,
  kQuery,
  kCreate,
  kRelease,
  kRetain,
  kReserve,
  kUnreserve,
  kMap,
  kUnmap,
  kSetAccess,
  kMulticast,
  kPoolCreate,
  kPoolDestroy,
  kPoolSet,
  kPoolTrim,
  kAdvise,
  kPrefetch,
  kDiscard,
  kCopy,  ///< within a device, between devices, or in a direction that only the addresses determine
  kCopyIn,
  kCopyOut,
  kFill,
  kLaunch,
  kGraphLaunch,
  kHostFunction,
  kStreamCreate,
  kStreamDestroy,
  kEventCreate,
  kEventDestroy,
  kEventRecord,
  kWait,       ///< a stream's, for an event
  kValue,      ///< a stream waits for a value in memory, or writes one
  kSemaphore,  ///< a stream waits for semaphores of another interface, or signals them
  kSynchronize,
  kCaptureBegin,
  kCaptureEnd,
  kGraphCreate,
  kGraphInstantiate,
  kGraphUpdate,
  kGraphUpload,
  kGraphDestroy,
  kIpcGet,
  kIpcOpen,
  kIpcClose,
  kReset,
  kPrivateTable,
  kLookUp,
  kCount,
};

constexpr std::array<std::string_view, static_cast<std::size_t>(Kind::kCount)> kKindNames = {
    "allocate",
    "free",
    "host_allocate",
    "host_free",
    "host_register",
    "host_unregister",
    "query",
    "create",
    "release",
    "retain",
    "reserve",
    "unreserve",
    "map",
    "unmap",
    "set_access",
    "multicast",
    "pool_create",
    "pool_destroy",
    "pool_set",
    "pool_trim",
    "advise",
    "prefetch",
    "discard",
    "copy",
    "copy_in",
    "copy_out",
    "fill",
    "launch",
    "graph_launch",
    "host_function",
    "stream_create",
    "stream_destroy",
    "event_create",
    "event_destroy",
    "event_record",
    "wait",
    "value",
    "semaphore",
    "synchronize",
    "capture_begin",
    "capture_end",
    "graph_create",
    "graph_instantiate",
    "graph_update",
    "graph_upload",
    "graph_destroy",
    "ipc_get",
    "ipc_open",
    "ipc_close",
    "reset",
    "private_table",
    "look_up",
};

/// One wrapped function; also its index in kFunctions.
enum class Entry : std::uint16_t {
#define SPILLWAY_DRIVER(symbol, ...) k_##symbol,
#define SPILLWAY_RUNTIME(symbol, ...) k_##symbol,
#include "interpose/functions.inc"
  kCount,
};

constexpr std::size_t kEntries = static_cast<std::size_t>(Entry::kCount);

enum class Library : std::uint8_t { kDriver, kRuntime };

struct Function {
  std::string_view symbol;
  std::string_view base;  ///< name in cuGetProcAddress; for runtime functions, without suffix
  int version;            ///< first version; 0: runtime function
  bool per_thread;        ///< stream 0 is the thread's default stream
  bool has_counterpart;   ///< the other variant is in the list too
  Library library;
  Kind kind;
};

constexpr std::array<Function, kEntries> kFunctions = {{
#define SPILLWAY_DRIVER_AS(symbol, base, version, suffix, per_thread, counterpart, kind, ...) \
  {#symbol, #base, version, per_thread, counterpart, Library::kDriver, Kind::kind},
#define SPILLWAY_RUNTIME_AS(symbol, base, per_thread, kind, ...) \
  {#symbol, #base, 0, per_thread, false, Library::kRuntime, Kind::kind},
#include "interpose/functions.inc"
}};

constexpr const Function& function_of(Entry entry) {
  return kFunctions[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
}

}  // namespace spillway::interpose
