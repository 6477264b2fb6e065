/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

/* NOLINTBEGIN(modernize-*,readability-identifier-naming): this header is C, with names as C
 * programs have them. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_ABI_VERSION 1
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

/* Bytes of one device. Set struct_size to sizeof(struct spillway_device_stats) before the call. */
struct spillway_device_stats {
  uint64_t struct_size;
  uint64_t live_bytes; /* handed out and not freed */
  uint64_t held_bytes; /* physical memory held from the driver */
  uint64_t held_peak_bytes;
  uint64_t away_bytes;    /* of storages that are on the host and not on the device */
  uint64_t stashed_bytes; /* copied to the host since the beginning */
  uint64_t fetched_bytes; /* copied back since the beginning */
  uint64_t pinned_bytes;  /* host memory that is pinned now */
  uint64_t pinned_peak_bytes;
  uint64_t in_slots_bytes; /* of the pinned bytes: in use, or waiting for a copy to pass */
};

/* SPILLWAY_ABI_VERSION of the library, which may differ from this header's. Threads: safe. */
SPILLWAY_API uint32_t spillway_abi_version(void);

/* Fills `stats` for a device, making its heap on first use. Threads: safe. Errors:
 * SPILLWAY_INVALID_ARGUMENT for a null pointer or a struct_size that no version has; otherwise as
 * the driver says. `stats` is then as it was. */
SPILLWAY_API int spillway_device_statistics(int32_t device, struct spillway_device_stats* stats);

/* Ends the step that is running. Threads: safe. */
SPILLWAY_API int spillway_step_end(void);

/* One line on this thread's last failed call, "" before any. Valid until the thread's next failed
 * call. */
SPILLWAY_API const char* spillway_last_error(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
