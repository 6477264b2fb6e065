/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

/* Spillway's C interface: fragmentation-free device memory with tags, for programs and languages
 * that cannot use the C++ headers. docs/c_api.md explains the contracts; examples/c has a
 * program.
 *
 * Threads: every function may be called on any thread at any time. Errors: functions return a
 * spillway_code. After a code other than SPILLWAY_OK nothing has changed, and
 * spillway_last_error() describes the error and its remedy. In a process forked from one that
 * uses Spillway, every function returns SPILLWAY_NOT_READY. No function prints, throws or ends
 * the process. */

/* NOLINTBEGIN(modernize-*,readability-identifier-naming): this header is C, with names as C
 * programs have them. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version 1: statistics of devices. Version 2: memory, streams' uses, tags, pause and resume.
 * Version 3: limits, traces. */
#define SPILLWAY_ABI_VERSION 3
#define SPILLWAY_API __attribute__((visibility("default")))

/* Result of a call; spillway_last_error() has the text. */
enum spillway_code {
  SPILLWAY_OK = 0,
  SPILLWAY_INVALID_ARGUMENT = 1,
  SPILLWAY_OUT_OF_DEVICE_MEMORY = 2,
  SPILLWAY_OUT_OF_HOST_MEMORY = 3,
  SPILLWAY_DRIVER_ERROR = 4,
  SPILLWAY_NO_DRIVER = 5,
  SPILLWAY_NOT_READY = 6
};

/* ---- memory ---- */

/* Streams. A stream passed to these functions belongs to the block's device and its primary
 * context, as created by the CUDA runtime, or is null. Release a block before you destroy the
 * streams that use it. Destroy the block's own stream only after its work is complete: a new
 * stream may get the same handle, and with it the cached memory. If a user stream is destroyed
 * before the release, the next reuse of the memory makes the host wait for the whole device. */

/* Allocates `size` bytes of a device into `*block`, for work on `stream` (a CUstream or
 * cudaStream_t; null is the legacy default stream), under this thread's innermost tag. The
 * address does not change until the block is released. Zero bytes give a null pointer. Stream:
 * usable on `stream` at once; the host waits only before an out-of-memory error. Errors:
 * SPILLWAY_INVALID_ARGUMENT if there is no such device, or if `stream` is invalid, detected at
 * its first block or at a wait; SPILLWAY_OUT_OF_DEVICE_MEMORY, whose text breaks memory down by
 * owner; SPILLWAY_DRIVER_ERROR. */
SPILLWAY_API int spillway_allocate(int32_t device, uint64_t size, void* stream, void** block);

/* Releases a block. Null is ignored. Stream: returns at once. The next use of the memory is
 * ordered after work submitted so far to the block's stream and the streams of spillway_use.
 * Requires: the block is one of spillway_allocate; a block that PyTorch allocated in the same heap
 * is released, too. Errors: SPILLWAY_INVALID_ARGUMENT if no allocated block of the heap begins at
 * the address: a pointer of another library, the middle of a block, or a released block. */
SPILLWAY_API int spillway_release(void* block);

/* Records that work on `stream` also uses the block that contains `at`. The memory is not reused
 * before the work submitted to that stream up to spillway_release is complete. Errors:
 * SPILLWAY_INVALID_ARGUMENT as there, and if `stream` is not a stream of the block's device. */
SPILLWAY_API int spillway_use(void* at, void* stream);

/* Limits of the bytes that a device's heap reserves from the driver.
 *   SPILLWAY_LIMIT_HARD: allocations beyond it are out of memory, as on a full device.
 *   SPILLWAY_LIMIT_SOFT: cached memory is released before the heap grows beyond it.
 */
enum spillway_limit { SPILLWAY_LIMIT_HARD = 0, SPILLWAY_LIMIT_SOFT = 1 };

#define SPILLWAY_NO_LIMIT UINT64_MAX

/* Sets one limit of a device in bytes, or removes it with SPILLWAY_NO_LIMIT. If more is
 * reserved, cached memory is released now; allocated blocks stay. Stream: the host waits if
 * memory is released. Errors: SPILLWAY_INVALID_ARGUMENT for 0, for more than the device has and
 * for an invalid spillway_limit. */
SPILLWAY_API int spillway_set_limit(int32_t device, int kind, uint64_t bytes);

/* ---- tags: the purpose of memory ---- */

/* Allocates this thread's blocks under `tag`, a path such as "optimizer" or "layers.3/mlp",
 * until the matching pop. Tags nest: "mlp" inside "layers.3" is "layers.3/mlp". Errors:
 * SPILLWAY_INVALID_ARGUMENT for null, for an invalid path (empty components, "*", control
 * characters), and for a nested path of more than 256 bytes. */
SPILLWAY_API int spillway_tag_push(const char* tag);

/* Ends the innermost tag that spillway_tag_push opened on this thread. Errors:
 * SPILLWAY_NOT_READY if none is open. */
SPILLWAY_API int spillway_tag_pop(void);

/* ---- pause and resume: release memory, then restore it at the same addresses ---- */

enum spillway_pause_flag {
  SPILLWAY_PAUSE_DISCARD = 1 /* contents are not preserved: nothing is copied */
};

/* Releases the memory of all allocated blocks, on all devices, whose tag matches `pattern`;
 * their addresses stay. A pattern is a path, which also matches all paths under it, or a path
 * with "*" in its components. The contents are kept in host memory, unless `flags` is
 * SPILLWAY_PAUSE_DISCARD. Requires: no work uses the blocks until they are resumed; an access
 * is an illegal memory access (CUDA_ERROR_ILLEGAL_ADDRESS).
 * `*released` (may be null) gets the bytes released to the driver. Stream: ordered after the
 * work submitted to the blocks' streams and those of spillway_use. The host waits for that work
 * and for the copies. Errors: SPILLWAY_INVALID_ARGUMENT for an empty pattern and if no memory
 * matches; SPILLWAY_NOT_READY if all of it is paused; SPILLWAY_OUT_OF_HOST_MEMORY;
 * SPILLWAY_DRIVER_ERROR. After an error no block is paused. */
SPILLWAY_API int spillway_pause(const char* pattern, uint32_t flags, uint64_t* released);

/* Restores paused memory with its contents; any stream may use it afterwards. Stream: the host
 * waits for the copies. Errors: as spillway_pause, and SPILLWAY_OUT_OF_DEVICE_MEMORY. After an
 * error all of the memory is still paused. */
SPILLWAY_API int spillway_resume(const char* pattern);

/* Allows blocks under `pattern` to be paused when a device runs out of memory (`allowed` 1),
 * until spillway_resume; 0 undoes one such call. Errors: SPILLWAY_NOT_READY for a 0 without a
 * matching 1; SPILLWAY_INVALID_ARGUMENT for other values. */
SPILLWAY_API int spillway_allow_eviction(const char* pattern, int allowed);

/* ---- traces: the lifetime of every block, as a file ---- */

/* Starts a trace of a device: records the lifetime of every block allocated from now on in a
 * file at `path` (docs/trace_format.md), until spillway_trace_end. One at a time per process.
 * Errors: SPILLWAY_INVALID_ARGUMENT for a missing path and if the file cannot be created;
 * SPILLWAY_NOT_READY if a trace is already open. */
SPILLWAY_API int spillway_trace_begin(int32_t device, const char* path);

/* Ends the trace. Errors: SPILLWAY_NOT_READY if none is open; SPILLWAY_INVALID_ARGUMENT if the
 * file could not be completed; the trace has ended in that case too. */
SPILLWAY_API int spillway_trace_end(void);

/* ---- statistics ---- */

/* Bytes of one device. Set struct_size to sizeof(struct spillway_device_stats) before the call.
 * Later versions add members at the end. */
struct spillway_device_stats {
  uint64_t struct_size;
  uint64_t allocated_bytes; /* allocated bytes, rounded */
  uint64_t reserved_bytes;  /* physical memory allocated from the driver */
  uint64_t reserved_peak_bytes;
  uint64_t offloaded_bytes; /* bytes of storages that are offloaded now */
  uint64_t stashed_bytes;   /* copied to the host since the start of the process */
  uint64_t fetched_bytes;   /* copied to the device since the start of the process */
  uint64_t pinned_bytes;    /* pinned host memory */
  uint64_t pinned_peak_bytes;
  uint64_t in_slots_bytes; /* part of the pinned bytes: in use, or waiting for a copy */
  /* Since version 2: */
  uint64_t requested_bytes; /* allocated bytes, as requested */
  uint64_t allocated_blocks;
  uint64_t paused_bytes; /* as requested, of paused blocks */
};

/* Fills `stats` for a device; creates its heap on first use. Errors: SPILLWAY_INVALID_ARGUMENT
 * for a null pointer or a struct_size of no version; otherwise those of the driver. */
SPILLWAY_API int spillway_device_statistics(int32_t device, struct spillway_device_stats* stats);

/* ---- the library ---- */

/* SPILLWAY_ABI_VERSION of the library, which may differ from this header's. */
SPILLWAY_API uint32_t spillway_abi_version(void);

/* Ends the running training step on all devices: its statistics are complete, plans for the next
 * steps are made, and pinned host memory is fitted to what the step used. Call it after the
 * optimizer's step. A missed budget is not reported here. Errors: only SPILLWAY_NOT_READY in a
 * forked process. */
SPILLWAY_API int spillway_step_end(void);

/* Text of this thread's last failed call, one line; "" if there is none. Valid until the
 * thread's next failed call. */
SPILLWAY_API const char* spillway_last_error(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
