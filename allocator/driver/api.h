// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <chrono>
#include <string>

namespace spillway::driver {

/// CUDA's driver functions as one table, the only entry point to CUDA in this project. A copy with
/// some entries replaced is a valid table too; tests use that to inject faults and omit waits.
struct Api {
#define SPILLWAY_CU(name, version) PFN_cu##name##_v##version name = nullptr;
#include "allocator/driver/symbols.inc"
#undef SPILLWAY_CU
};

/// Looks up one driver function. `name` has its cu prefix; null if there is none.
using Lookup = void* (*)(const char* name, int version);

/// Fills a table. Errors: kNoDriver with the name of the first missing function.
Result<Api> load(Lookup lookup);

/// This process's table, loaded once and never unloaded. From libcuda.so.1, or with
/// SPILLWAY_EMULATE=1 from the emulated driver in this process (`spillway_emulator_proc_address`,
/// emulator/emulator.h). cuInit has been called.
/// Threads: safe.
/// Errors: kNoDriver, kDriver, kInvalidArgument (environment).
Result<const Api*> api();

/// Whether `api()` is the emulated GPU. Every printed result must state it.
bool emulated();

/// Whether an emulated GPU moves no bytes (a dry run): memory that only copies access is never
/// touched.
bool moves_no_bytes();

/// Puts the calling thread to sleep for `duration` of the host's time. If an emulated GPU's clock
/// is virtual, the host's virtual time advances instead, and no real time passes. Use it between
/// two queries of the device: a real sleep does not advance a virtual clock.
/// Threads: safe. Real sleeps are counted in Counters::sleeps.
void sleep_for(std::chrono::microseconds duration);

/// Sets the function that describes an address at which nothing is mapped, for an emulated GPU's
/// reports of illegal accesses. It returns null if it does not know, otherwise a text that lasts
/// until its next call. It may be called in a signal handler. Does nothing without an emulated GPU.
void describe_addresses(const char* (*describe)(std::uintptr_t at));

/// Whether an emulated GPU writes reports with tags.
bool tags_are_reported();

/// Notifies the emulated GPU of the calling thread's tag, for its reports; "" for none. Does
/// nothing without an emulated GPU.
/// Threads: safe.
void announce_tag(const std::string& name);

/// The Status of a failed call, with its name; kOutOfDeviceMemory for CUDA_ERROR_OUT_OF_MEMORY.
Status failure(const Api& api, CUresult result, const char* call, const char* file, int line);

/// `result` as a Status.
inline Status to_status(
    const Api& api, CUresult result, const char* call, const char* file, int line) {
  return result == CUDA_SUCCESS ? Status() : failure(api, result, call, file, line);
}

}  // namespace spillway::driver

/// Calls one entry of a table and returns a Status: SPILLWAY_CALL(api, MemRelease, handle).
#define SPILLWAY_CALL(table, name, ...) \
  ::spillway::driver::to_status((table), (table).name(__VA_ARGS__), "cu" #name, __FILE__, __LINE__)
