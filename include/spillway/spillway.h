/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

/* Spillway's C interface: device memory that does not fragment, with tags, for programs and
 * languages that do not see the C++ headers. docs/c_api.md has the contracts in prose, examples/c a
 * program.
 *
 * Threads: every function may be called on any thread at any time. Errors: a function returns a
 * spillway_code; where it is not SPILLWAY_OK nothing has changed and spillway_last_error() says
 * what to do. In a process that was forked from one that uses Spillway, every function returns
 * SPILLWAY_NOT_READY. Nothing here prints, throws or ends the process. */

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

/* What a call returns. Text for it: spillway_last_error(). */
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

/* Streams. A stream that is given to these functions is one of the block's device, in its primary
 * context, as the runtime makes them, or null. Release a block before you destroy the streams that
 * use it, and destroy the block's own stream only when the work that it was given is done: the next
 * stream may get its handle, and with it the memory that it left. A user that is destroyed before
 * the release costs the host a wait for the whole device when the memory is next needed. */

/* Gives `size` bytes of a device in `*block`, for work on `stream` (a CUstream or cudaStream_t;
 * null is the legacy default stream), under this thread's innermost tag. The address never changes
 * while the block lives. No bytes give a null pointer. Stream: usable on `stream` at once; the host
 * waits only before an out-of-memory error. Errors: SPILLWAY_INVALID_ARGUMENT for a device that is
 * not there, and where `stream` is found to be none: at its first block, or where it had to wait;
 * SPILLWAY_OUT_OF_DEVICE_MEMORY, whose text says who holds what; SPILLWAY_DRIVER_ERROR. */
SPILLWAY_API int spillway_allocate(int32_t device, uint64_t size, void* stream, void** block);

/* Gives a block back. Null is ignored. Stream: returns at once; work that its own stream, and the
 * streams of spillway_use, have been given comes before the code that gets the memory next. Errors:
 * SPILLWAY_INVALID_ARGUMENT for what is not the beginning of a live block of spillway_allocate:
 * another library's pointer, the middle of a block, or one that was released before. */
SPILLWAY_API int spillway_release(void* block);

/* The block around `at` is also used by work on `stream`: it is not reused before what that stream
 * has been given by the time of spillway_release. Errors: SPILLWAY_INVALID_ARGUMENT as there, and
 * for what is no stream of the block's device. */
SPILLWAY_API int spillway_use(void* at, void* stream);

/* What the heap of a device may hold from the driver.
 *   SPILLWAY_LIMIT_HARD: no more; beyond it memory is out, as where the device has none.
 *   SPILLWAY_LIMIT_SOFT: beyond it cached memory goes back before the heap grows.
 */
enum spillway_limit { SPILLWAY_LIMIT_HARD = 0, SPILLWAY_LIMIT_SOFT = 1 };

#define SPILLWAY_NO_LIMIT UINT64_MAX

/* Sets one limit of a device in bytes, or removes it with SPILLWAY_NO_LIMIT. Where more is held,
 * cached memory goes back now, and what lives stays. Stream: the host waits where memory goes back.
 * Errors: SPILLWAY_INVALID_ARGUMENT for 0, for more than the device has and for what is no
 * spillway_limit. */
SPILLWAY_API int spillway_set_limit(int32_t device, int kind, uint64_t bytes);

/* ---- tags: what memory is for ---- */

/* From now on this thread's blocks are under `tag`, a path such as "optimizer" or "layers.3/mlp",
 * until the matching pop. Tags nest: "mlp" inside "layers.3" is "layers.3/mlp". Errors:
 * SPILLWAY_INVALID_ARGUMENT for null and for what is no path (empty components, "*", control
 * characters) or is one of more than 256 bytes in all. */
SPILLWAY_API int spillway_tag_push(const char* tag);

/* Ends the innermost tag that spillway_tag_push opened on this thread. Errors: SPILLWAY_NOT_READY
 * where none is open. */
SPILLWAY_API int spillway_tag_pop(void);

/* ---- pause and resume: memory that goes and is fetched at the same addresses ---- */

enum spillway_pause_flag {
  SPILLWAY_PAUSE_DISCARD = 1 /* contents need not be fetched: nothing is copied */
};

/* Takes the memory offloaded of all live blocks, on all devices, whose tag fits `pattern`: a path,
 * which also fits what lies in it, or one with "*" in its components. The addresses stay. What the
 * blocks hold waits in host memory, unless flags say SPILLWAY_PAUSE_DISCARD. You know that nothing
 * works on the blocks until the resume: a touch faults. `*released` (may be null) gets the bytes
 * that went back to the driver. Stream: comes after all that the blocks' streams and spillway_use's
 * have been given; the host waits for them and for the copies. Errors: SPILLWAY_INVALID_ARGUMENT
 * for an empty pattern and where no memory is under it, SPILLWAY_NOT_READY where all of it is
 * paused, SPILLWAY_OUT_OF_HOST_MEMORY, SPILLWAY_DRIVER_ERROR. All or nothing. */
SPILLWAY_API int spillway_pause(const char* pattern, uint32_t flags, uint64_t* released);

/* Brings paused memory back with its contents; any stream may use it afterwards. Stream: the host
 * waits for the copies. Errors: as spillway_pause, and SPILLWAY_OUT_OF_DEVICE_MEMORY. All or
 * nothing. */
SPILLWAY_API int spillway_resume(const char* pattern);

/* Where a device runs out of memory, blocks under `pattern` may be paused (`allowed` 1) until
 * spillway_resume, or not any more (0, once for each 1). Errors: SPILLWAY_NOT_READY for a 0 without
 * its 1; SPILLWAY_INVALID_ARGUMENT for other values. */
SPILLWAY_API int spillway_allow_eviction(const char* pattern, int allowed);

/* ---- traces: the life of every block, as a file ---- */

/* Writes the life of every block of a device that is allocated from now on to a file at `path`
 * (docs/trace_format.md), until spillway_trace_end. One at a time in a process. Errors:
 * SPILLWAY_INVALID_ARGUMENT for no path and where the file cannot be made; SPILLWAY_NOT_READY while
 * one is being written. */
SPILLWAY_API int spillway_trace_begin(int32_t device, const char* path);

/* Ends it. Errors: SPILLWAY_NOT_READY where none is being written; SPILLWAY_INVALID_ARGUMENT where
 * the file could not be written to its end: it has ended anyway. */
SPILLWAY_API int spillway_trace_end(void);

/* ---- statistics ---- */

/* Bytes of one device. Set struct_size to sizeof(struct spillway_device_stats) before the call.
 * Later versions add members at the end. */
struct spillway_device_stats {
  uint64_t struct_size;
  uint64_t allocated_bytes; /* handed out and not released, as rounded */
  uint64_t reserved_bytes;  /* physical memory held from the driver */
  uint64_t reserved_peak_bytes;
  uint64_t offloaded_bytes; /* of storages that are on the host and not on the device */
  uint64_t stashed_bytes;   /* copied to the host since the beginning */
  uint64_t fetched_bytes;   /* copied back since the beginning */
  uint64_t pinned_bytes;    /* host memory that is pinned now */
  uint64_t pinned_peak_bytes;
  uint64_t in_slots_bytes; /* of the pinned bytes: in use, or waiting for a copy to pass */
  /* Since version 2: */
  uint64_t requested_bytes; /* handed out and not released, as asked for */
  uint64_t allocated_blocks;
  uint64_t paused_bytes; /* as asked for, of blocks that are paused */
};

/* Fills `stats` for a device, making its heap on first use. Errors: SPILLWAY_INVALID_ARGUMENT for a
 * null pointer or a struct_size that no version has; otherwise as the driver says. */
SPILLWAY_API int spillway_device_statistics(int32_t device, struct spillway_device_stats* stats);

/* ---- the library ---- */

/* SPILLWAY_ABI_VERSION of the library, which may differ from this header's. */
SPILLWAY_API uint32_t spillway_abi_version(void);

/* Ends the training step that is running. */
SPILLWAY_API int spillway_step_end(void);

/* One line on this thread's last failed call, "" before any. Valid until the thread's next failed
 * call. */
SPILLWAY_API const char* spillway_last_error(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
