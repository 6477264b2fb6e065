// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

/// The C interface of libspillway_emulator.so, for Spillway's driver table, the operator layer and
/// tests. It is included only within `emulator`; other code finds the functions by name in the
/// process.
extern "C" {

/// A driver function ("cuMemCreate") by ABI version; null if it is not emulated.
void* spillway_emulator_proc_address(const char* name, int version);

/// 1 if the library is loaded and its settings are valid; otherwise 0, with a line in
/// spillway_emulator_error.
int spillway_emulator_ready();
const char* spillway_emulator_error();

/// Installs PyTorch's emulated operators in the process. Returns 0 on success, and if PyTorch's
/// CUDA libraries are not loaded. Otherwise prints the reason to stderr, once.
int spillway_emulator_install_operators();

/// Settings of the operator layer.
int spillway_emulator_checks();            // SPILLWAY_EMULATE_CHECK
int spillway_emulator_rng_is_cpu();        // SPILLWAY_EMULATE_RNG=cpu
int spillway_emulator_clock_is_virtual();  // SPILLWAY_EMULATE_CLOCK=virtual
int spillway_emulator_shape_only();        // SPILLWAY_EMULATE_SHAPE_ONLY

/// Values that a dry run assumes if values that were not computed are read
/// (SPILLWAY_EMULATE_ASSUME).
struct spillway_emulator_assumptions {  // NOLINT(readability-identifier-naming): C
  double nonzero;                       // selected share of a mask
  double unique;  // share of elements that differ from all others; below 0: no assumption
  double value;   // value of small results of large operands
  double finite;  // isnan and isinf find no element
};

void spillway_emulator_assumed(struct spillway_emulator_assumptions* assumed);

/// Replaces the injected faults (SPILLWAY_EMULATE_FAULT); null clears them. Returns null if `spec`
/// is valid, otherwise one line with the error, valid until the thread's next call. Needs no
/// machine, so a launcher may check a spec.
const char* spillway_emulator_fault(const char* spec);

/// Runs all work that the next operation on `stream` is ordered after. Invalidates the capture of a
/// capturing stream.
void spillway_emulator_drain(CUstream stream);
/// Begins an operation on `stream`: joins its clock with the host's and advances it. Call it again
/// after an allocation within the operation, which may have waited.
void spillway_emulator_begin(CUstream stream);
/// Reports that the operation reads or writes these bytes. `name` must outlive the process (the
/// caller interns operator names).
void spillway_emulator_access(
    CUstream stream, const void* at, size_t bytes, int write, const char* name);
/// Whether the operation may access these bytes from the stream's device: device memory that the
/// device can access, or page-locked host memory. Otherwise 0: error 700 (illegal address) is
/// sticky in the process, and one line names the cause. Call it before a kernel runs, because a
/// fault within it cannot be converted to an error. Cheap if the thread has checked the same memory
/// before.
int spillway_emulator_touch(
    CUstream stream, const void* at, size_t bytes, int write, const char* name);

/// A view's bytes, read or written: runs of `run` bytes from `at` on, repeated along axes.
struct spillway_emulator_view {  // NOLINT(readability-identifier-naming): C
  const void* at;
  size_t run;
  size_t axes;
  size_t counts[8];
  size_t strides[8];  // in bytes
  int write;
};

/// As spillway_emulator_access, byte by byte: interleaved views have no common bytes.
void spillway_emulator_access_view(CUstream stream,
                                   const struct spillway_emulator_view* view,
                                   const char* name);
/// Reports that the program reads or writes these bytes on the host. Only page-locked memory
/// counts; `name` as above.
void spillway_emulator_host_access(const void* at, size_t bytes, int write, const char* name);
void spillway_emulator_host_access_view(const struct spillway_emulator_view* view,
                                        const char* name);
/// Sets the calling thread's tag ("layer.3") until the next call; null for none. Races name it
/// for each operation that the thread queues. Copied.
void spillway_emulator_tag(const char* tag);

/// Sets the function that describes what an address at which nothing is mapped belongs to, for
/// reports of illegal accesses; null: none. It returns null if it does not know, otherwise a text
/// that lasts until its next call. Signal handlers call it.
void spillway_emulator_describe_addresses(const char* (*describe)(uintptr_t at));
/// Sets the calling thread's location in the program until the next call; null for none. Must
/// outlive the process.
void spillway_emulator_location(const char* location);
/// 1: until the call with 0, locks and semaphores of the calling thread establish no order.
void spillway_emulator_pause_threads(int pause);
/// One thread releases what it knows to have happened at `object`, and another one acquires it
/// there: for locks that the checker cannot see.
void spillway_emulator_thread_releases(const void* object);
void spillway_emulator_thread_acquires(const void* object);
/// A kernel failed on the device: `error` (a CUresult) is sticky in the process. Calls that found
/// an earlier error keep that one.
void spillway_emulator_fail(int error);
/// 1 if `at` is in emulated device memory (mapped or not).
int spillway_emulator_owns(const void* at);

/// 1 while `stream` captures: its work becomes nodes of a graph instead of running.
int spillway_emulator_capturing(CUstream stream);
/// Adds a kernel as the capturing stream's next node. Every launch of the graph calls `run(state)`
/// in its stream's order, without the machine's lock. It computes, and calls no CUDA function.
/// `destroy(state)` is called once, after the graph, its executables and all launches have ended.
/// It may be called under the machine's lock and calls no CUDA function either. `name` outlives the
/// process; `accesses` is copied.
/// Errors: a nonzero CUresult if the stream captures nothing, or its capture is invalid; `destroy`
/// is not called then.
int spillway_emulator_add_node(CUstream stream,
                               const char* name,
                               void (*run)(void* state),
                               void (*destroy)(void* state),
                               void* state,
                               const struct spillway_emulator_view* accesses,
                               size_t count);

/// Sets the cost of the running operator on `stream` (while it captures: of the next node), with a
/// virtual clock: bytes read and written, and floating-point operations. `arithmetic`: 0 16-bit
/// numbers, 1 TF32, 2 single, 3 double precision, 4 FP8, 5 8-bit integers. `kernel`: 0 any, 1 a
/// matrix product or convolution, 2 attention, 3 its backward pass.
void spillway_emulator_cost(
    CUstream stream, uint64_t bytes, double flops, int arithmetic, int kernel);
/// Sets the cost of a collective operation on `stream`, with a virtual clock: the bytes sent from
/// this device to others.
void spillway_emulator_collective(CUstream stream, uint64_t bytes);
/// The host's time in milliseconds: virtual, or since the machine was created with a real clock.
double spillway_emulator_now_ms();
/// Virtual: advances the host's time by `seconds` of idle time, without real time passing, and
/// returns 1. With a real clock: does nothing and returns 0.
int spillway_emulator_sleep(double seconds);
/// Virtual: the end of all work submitted to the device, and the host's time if later. The query
/// takes no time.
double spillway_emulator_end_ms(int device);
/// Virtual: how long the device has been busy with a kind of work, in milliseconds. `work`: 0 to 3
/// kernels by kind, as above, 0 with fills and copies within devices; 4 copies from the host, 5 to
/// it, 6 collectives. Kernels of several streams share the device.
double spillway_emulator_busy_ms(int device, int work);
/// Peak of the page-locked host memory since the process started, in bytes.
uint64_t spillway_emulator_host_peak();

/// Number of events since the process started. An API name ("cuMemCreate", "cudaMalloc"), or
/// "host_syncs" (the host waited for the device), "unordered" (races),
/// "device_allocations" (physical memory created), "host_registrations", "kernels" (operators that
/// cost a stream time). Also the bytes of copies between host and device: "bytes_to_device",
/// "bytes_to_host". 0 for unknown names.
uint64_t spillway_emulator_count(const char* what);
/// The text of race `index`; null past the last kept one (1024 are kept).
const char* spillway_emulator_race(size_t index);
void spillway_emulator_clear_races();

/// Bytes of physical memory in use on a device now, and at its peak since the last reset.
uint64_t spillway_emulator_used(int device);
uint64_t spillway_emulator_peak(int device);
void spillway_emulator_reset_peak(int device);
}
