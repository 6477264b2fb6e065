// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for preload_bench: calls that cost nothing, under names that the preload library
// wraps, and a launch under one that it does not.
#include <stddef.h>

int cuLaunchKernel(void* function,
                   unsigned grid_x,
                   unsigned grid_y,
                   unsigned grid_z,
                   unsigned block_x,
                   unsigned block_y,
                   unsigned block_z,
                   unsigned shared,
                   void* stream,
                   void** arguments,
                   void** extra);
int plain_launch(void* function,
                 unsigned grid_x,
                 unsigned grid_y,
                 unsigned grid_z,
                 unsigned block_x,
                 unsigned block_y,
                 unsigned block_z,
                 unsigned shared,
                 void* stream,
                 void** arguments,
                 void** extra);

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream);

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
  return 0;
}

#define BODY                                                                              \
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, \
      (void)block_z, (void)shared, (void)stream, (void)arguments, (void)extra;            \
  return 0

int cuLaunchKernel(void* function,
                   unsigned grid_x,
                   unsigned grid_y,
                   unsigned grid_z,
                   unsigned block_x,
                   unsigned block_y,
                   unsigned block_z,
                   unsigned shared,
                   void* stream,
                   void** arguments,
                   void** extra) {
  BODY;
}

int plain_launch(void* function,
                 unsigned grid_x,
                 unsigned grid_y,
                 unsigned grid_z,
                 unsigned block_x,
                 unsigned block_y,
                 unsigned block_z,
                 unsigned shared,
                 void* stream,
                 void** arguments,
                 void** extra) {
  BODY;
}
