/* SPDX-License-Identifier: Apache-2.0 */
#include <spillway/spillway.h>

int statistics_from_c(struct spillway_device_stats* stats);

/* The header is C, and a caller in C gets the same answers. */
int statistics_from_c(struct spillway_device_stats* stats) {
  stats->struct_size = sizeof *stats;
  return spillway_device_statistics(0, stats);
}
