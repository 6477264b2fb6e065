// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

/// The C interface of libspillway_emulator.so, for Spillway's driver table, the operator layer and
/// tests. Nothing outside `emulator` includes it; others find the functions by name in the process.
extern "C" {

/// A driver function ("cuMemCreate") by ABI version, null where it is not emulated.
void* spillway_emulator_proc_address(const char* name, int version);

/// 1 where the library is in the process and its settings are valid; otherwise 0 and a line in
/// spillway_emulator_error.
int spillway_emulator_ready();
const char* spillway_emulator_error();

/// Brings PyTorch's emulated operators into the process; 0 when done, and where PyTorch's CUDA
/// libraries are not in it. Otherwise stderr has the reason, once.
int spillway_emulator_install_operators();

/// Settings that the operator layer needs.
int spillway_emulator_checks();            // SPILLWAY_EMULATE_CHECK
int spillway_emulator_rng_is_cpu();        // SPILLWAY_EMULATE_RNG=cpu
int spillway_emulator_clock_is_virtual();  // SPILLWAY_EMULATE_CLOCK=virtual
int spillway_emulator_shape_only();        // SPILLWAY_EMULATE_SHAPE_ONLY

/// What a dry run takes for true where values are asked for that nothing has computed
/// (SPILLWAY_EMULATE_ASSUME).
struct spillway_emulator_assumptions {  // NOLINT(readability-identifier-naming): C
  double nonzero;                       // the share of a mask that selects
  double unique;  // the share of elements that differ from all others; below 0: is not assumed
  double value;   // what small results of something larger hold
  double finite;  // whether isnan and isinf find nothing
};

void spillway_emulator_assumed(struct spillway_emulator_assumptions* assumed);

/// Replaces the faults on demand (SPILLWAY_EMULATE_FAULT), null clears them. Null where `spec` was
/// taken, otherwise one line that says what is wrong with it, valid until the thread's next call.
/// Needs no machine: a launcher may check a spec with it.
const char* spillway_emulator_fault(const char* spec);

/// Runs everything that the next operation on `stream` must come after. Invalidates the capture of
/// a capturing stream.
void spillway_emulator_drain(CUstream stream);
/// A new operation begins on `stream`: its clock advances and joins the host's. Called again after
/// an allocation inside the operation, which may have waited.
void spillway_emulator_begin(CUstream stream);
/// The operation reads or writes these bytes. `name` must live indefinitely (operator names are
/// interned by the caller).
void spillway_emulator_access(
    CUstream stream, const void* at, size_t bytes, int write, const char* name);
/// Whether the operation may access these bytes from the stream's device: device memory that the
/// device has access to, or page-locked host memory. Otherwise 0: error 700 (illegal address) stays
/// with the process, and one line says what is wrong. To be asked before a kernel runs, because a
/// fault inside it cannot be turned into an error; cheap where the thread asked of the same memory
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

/// As spillway_emulator_access, byte by byte: two views that interleave share nothing.
void spillway_emulator_access_view(CUstream stream,
                                   const struct spillway_emulator_view* view,
                                   const char* name);
/// The program reads or writes these bytes on the host. Only page-locked memory counts; `name` as
/// above.
void spillway_emulator_host_access(const void* at, size_t bytes, int write, const char* name);
void spillway_emulator_host_access_view(const struct spillway_emulator_view* view,
                                        const char* name);
/// What the calling thread works for ("layer.3"), until the next call; null for nothing. Reports
/// name it for each operation that the thread queues. Copied.
void spillway_emulator_tag(const char* tag);
/// Where in the program the calling thread is, until the next call; null for nowhere. Must live
/// indefinitely
/// .
void spillway_emulator_place(const char* place);
/// 1: until the call with 0, locks and semaphores that the calling thread uses order nothing.
void spillway_emulator_pause_threads(int pause);
/// A kernel failed on the device: `error` (a CUresult) stays with the process. Calls that found an
/// earlier one keep it.
void spillway_emulator_fail(int error);
/// 1 where `at` lies in emulated device memory (mapped or not).
int spillway_emulator_owns(const void* at);

/// 1 while `stream` captures: what it is given becomes nodes of a graph instead of running.
int spillway_emulator_capturing(CUstream stream);
/// A kernel as the capturing stream's next node. At every launch of the graph `run(state)` is
/// called in its stream's order, without the machine's lock: it computes, and calls nothing of
/// CUDA. `destroy(state)` is called once, after the graph, all executables made from it and all
/// launches have gone; it may be called under the machine's lock and calls nothing of CUDA either.
/// `name` lives indefinitely; `accesses` is copied. Errors: a CUresult other than 0 where the
/// stream captures nothing, or its capture is invalid; `destroy` is not called then.
int spillway_emulator_add_node(CUstream stream,
                               const char* name,
                               void (*run)(void* state),
                               void (*destroy)(void* state),
                               void* state,
                               const struct spillway_emulator_view* accesses,
                               size_t count);

/// What the operator that runs on `stream` now costs it (while it captures: the next node), with a
/// virtual clock: bytes read and written, and floating-point operations; `arithmetic` of 0 numbers
/// of 16 bits, 1 TF32, 2 single, 3 double precision, 4 FP8, 5 of 8 bits, whole; `kernel` 0 any, 1 a
/// matrix product or convolution, 2 attention, 3 its backward pass.
void spillway_emulator_cost(
    CUstream stream, uint64_t bytes, double flops, int arithmetic, int kernel);
/// What a collective operation on `stream` costs it, with a virtual clock: this many bytes go from
/// this device to others.
void spillway_emulator_collective(CUstream stream, uint64_t bytes);
/// The host's time in milliseconds: virtual, or since the machine was made where the clock is real.
double spillway_emulator_now_ms();
/// Virtual: the host's time advances by this many seconds, in which it does nothing; no real time
/// passes. Returns 1 then, and 0, having done nothing, where the clock is real.
int spillway_emulator_sleep(double seconds);
/// Virtual: when all that was given to the device so far has ended, and the host is there. To ask
/// takes no time.
double spillway_emulator_end_ms(int device);
/// Virtual: how long the device has been busy with something, in milliseconds: `work` 0 to 3
/// kernels by kind, as above, 0 with fills and copies within devices; 4 copies from the host, 5 to
/// it, 6 collectives. Of kernels that run at once the time counts once, for the one that was given
/// first.
double spillway_emulator_busy_ms(int device, int work);
/// The most host memory that was page-locked at once since the process began, in bytes.
uint64_t spillway_emulator_host_peak();

/// How often something happened since the process began: an API name ("cuMemCreate", "cudaMalloc"),
/// or "host_syncs" (the host waited for the device), "unordered" (order-checker reports),
/// "device_allocations" (physical memory created), "host_registrations", "kernels" (operators that
/// cost a stream something); and how many bytes copies
/// between host and device have brought: "bytes_to_device", "bytes_to_host". 0 for what never
/// happened.
uint64_t spillway_emulator_count(const char* what);
/// The text of order-checker report `index`, null past the last kept one (1024 are kept).
const char* spillway_emulator_report(size_t index);
void spillway_emulator_clear_reports();

/// Bytes of physical memory in use on a device now, and at its peak since the last reset.
uint64_t spillway_emulator_used(int device);
uint64_t spillway_emulator_peak(int device);
void spillway_emulator_reset_peak(int device);
}
