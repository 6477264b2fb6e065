/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory without PyTorch: two buffers under tags, one of which makes room for a third.
 *
 *     cc examples/c/pause.c -Iinclude -I<CUDA>/include -L<libraries> -lspillway -lcudart -o pause
 */
#include <cuda_runtime_api.h>

#include <spillway/spillway.h>
#include <stdio.h>
#include <string.h>

enum { kSize = 64 << 20 };

static char host[kSize];

/* One call of the interface; the program ends at the first that fails. */
#define TRY(call)                                                \
  do {                                                           \
    if ((call) != SPILLWAY_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, spillway_last_error()); \
      return 1;                                                  \
    }                                                            \
  } while (0)

static uint64_t held(void) {
  struct spillway_device_stats stats = {.struct_size = sizeof stats};
  return spillway_device_statistics(0, &stats) == SPILLWAY_OK ? stats.reserved_bytes >> 20 : 0;
}

int main(int arguments, char** argument) {
  cudaStream_t stream;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    fprintf(stderr, "no GPU: run this under `spillway emulate --`\n");
    return 1;
  }

  /* The whole run as a trace, for `spillway trace show`, where a path is given. */
  if (arguments > 1) TRY(spillway_trace_begin(0, argument[1]));

  void* weights;
  void* state;
  TRY(spillway_tag_push("model/weights"));
  TRY(spillway_allocate(0, kSize, stream, &weights));
  TRY(spillway_tag_pop());
  TRY(spillway_tag_push("optimizer"));
  TRY(spillway_allocate(0, kSize, stream, &state));
  TRY(spillway_tag_pop());

  /* The stream may still be writing when the pause is asked for: it comes after. */
  memset(host, 7, kSize);
  cudaMemcpyAsync(state, host, kSize, cudaMemcpyHostToDevice, stream);
  printf("held: %u MiB\n", (unsigned)held());

  TRY(spillway_pause("optimizer", 0, NULL));
  printf("optimizer paused: %u MiB\n", (unsigned)held());

  void* activations;
  TRY(spillway_allocate(0, kSize, stream, &activations));
  cudaMemcpyAsync(activations, weights, kSize, cudaMemcpyDeviceToDevice, stream);
  TRY(spillway_release(activations)); /* in stream order: no wait */

  TRY(spillway_resume("optimizer"));
  memset(host, 0, kSize);
  cudaMemcpyAsync(host, state, kSize, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  printf("optimizer resumed: its bytes are %s\n",
         host[0] == 7 && host[kSize - 1] == 7 ? "back" : "lost");

  /* What is not a block, or not any more, is refused and changes nothing. */
  TRY(spillway_release(state));
  printf("released twice: %s\n",
         spillway_release(state) == SPILLWAY_INVALID_ARGUMENT ? "refused" : "taken");
  TRY(spillway_release(weights));
  if (arguments > 1) TRY(spillway_trace_end());
  cudaStreamDestroy(stream);
  return 0;
}
