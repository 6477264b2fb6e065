// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <chrono>
#include <string>

namespace spillway::driver {

/// CUDA's driver functions as one table: the only door to CUDA in this project. A copy with some
/// entries replaced is a legal table too (tests inject faults and leave out waits that way).
struct Api {
#define SPILLWAY_CU(name, version) PFN_cu##name##_v##version name = nullptr;
#include "allocator/driver/symbols.inc"
#undef SPILLWAY_CU
};

/// Looks up one driver function. `name` has its cu prefix; null where there is none.
using Lookup = void* (*)(const char* name, int version);

/// Fills a table. Errors: kNoDriver naming the first function that is missing.
Result<Api> load(Lookup lookup);

/// This process's table, loaded once and never unloaded: from libcuda.so.1, or, where
/// SPILLWAY_EMULATE=1, from the emulated driver in this process (`spillway_emulator_proc_address`,
/// emulator/emulator.h). cuInit has been called. Threads: safe. Errors: kNoDriver, kDriver,
/// kInvalidArgument (environment).
Result<const Api*> api();

/// True where `api()` stands on the emulated GPU. Every result printed must say so.
bool emulated();

/// Whether an emulated GPU moves no bytes (a dry run): memory that only copies reach is never
/// touched.
bool moves_no_bytes();

/// The calling thread sleeps for that much of the host's time. Where an emulated GPU's clock is
/// virtual, the host's virtual time advances instead, and no real time passes. Use it between two
/// queries of the device: a real sleep does not bring a virtual clock nearer to the event. Threads:
/// safe. Real sleeps are counted in Counters::sleeps.
void sleep_for(std::chrono::microseconds duration);

/// Whether an emulated GPU writes reports that name tags.
bool tags_are_reported();

/// Tells the emulated GPU what the calling thread works for from now on, so that its reports can
/// name it; "" for nothing. Does nothing where there is none. Threads: safe.
void announce_tag(const std::string& name);

/// A failed call's Status, which names it; kOutOfDeviceMemory for CUDA_ERROR_OUT_OF_MEMORY.
Status failure(const Api& api, CUresult result, const char* call, const char* file, int line);

/// `result` as a Status.
inline Status to_status(
    const Api& api, CUresult result, const char* call, const char* file, int line) {
  return result == CUDA_SUCCESS ? Status() : failure(api, result, call, file, line);
}

}  // namespace spillway::driver

/// Calls one entry of a table and gives a Status: SPILLWAY_CALL(api, MemRelease, handle).
#define SPILLWAY_CALL(table, name, ...) \
  ::spillway::driver::to_status((table), (table).name(__VA_ARGS__), "cu" #name, __FILE__, __LINE__)
