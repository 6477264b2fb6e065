// SPDX-License-Identifier: Apache-2.0
#include "interpose/substitution.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "interpose/heap_library.h"
#include "interpose/mode.h"
#include "interpose/next.h"
#include "interpose/wrapper.h"

#include <cuda.h>

#include <dlfcn.h>

#include <optional>
#include <unordered_set>

namespace spillway::interpose {

constinit std::atomic<bool> substituting_now{false};

namespace {

constinit std::atomic<const char*> refusal{""};
constinit std::atomic<bool> anything_served{false};
constinit std::atomic<int> captures{0};

/// The addresses that were served and not freed.
struct Served {
  LightMutex mutex;
  std::unordered_set<void*> all SPILLWAY_GUARDED_BY(mutex);

  void add(void* at) {
    const LightLock lock(mutex);
    all.insert(at);
  }

  bool take(void* at) {
    const LightLock lock(mutex);
    return all.erase(at) != 0;
  }

  bool holds(const void* at) {
    const LightLock lock(mutex);
    return all.contains(const_cast<void*>(at));  // NOLINT: looked at only
  }
};

Served& served() {
  static auto* only = new Served;  // never freed: blocks are freed while the process ends
  return *only;
}

/// Stores the text permanently, and logs it if it has changed. False: not served.
bool refuse(const std::string& why) {
  if (why == refusal.load()) return false;
  refusal.store((new std::string(why))->c_str());
  log("preload: allocations are not served from Spillway's heap: " + why);
  return false;
}

/// No call will be served; permanent.
bool refuse_for_good(const std::string& why) {
  substituting_now.store(anything_served.load());  // served memory must still be freed here
  return refuse(why);
}

/// Why no memory of this process may be served, as far as that can be determined without CUDA.
std::optional<std::string> objection() {
  const auto ranks = env::foreign("WORLD_SIZE");
  if (!ranks) return std::nullopt;
  char* end = nullptr;
  if (std::strtol(ranks->c_str(), &end, 10) <= 1 && *end == '\0') return std::nullopt;
  return "WORLD_SIZE=" + *ranks +
         ": the ranks of a job share memory between processes by CUDA's IPC handles, which exist "
         "for "
         "the driver's own memory only";
}

/// Whether CUDA is the next definition of `entry`; otherwise another library serves or observes its
/// calls.
bool next_is_cuda(Entry entry) {
  void* next = next_of(entry).load();
  if (next == nullptr || defines(next, function_of(entry).library)) return true;
  Dl_info is{};
  const char* name = dladdr(next, &is) != 0 && is.dli_fname != nullptr ? is.dli_fname : "?";
  return refuse_for_good(
      "another library stands between this program and CUDA: " + std::string(name) +
      " has its own " + std::string(function_of(entry).symbol));
}

}  // namespace

void allow_substitution() {
  if (const auto why = objection()) {
    refuse(*why);
    return;
  }
  substituting_now.store(true);
}

void forget_substitution() {
  substituting_now.store(false);
}

const char* substitution_refusal() {
  return refusal.load();
}

void note_capture_begin() {
  captures.fetch_add(1);
}

void note_capture_end(int result) {
  const bool ended = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                     result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  // Excludes captures that began before the library was active.
  int open = captures.load();
  while (ended && open > 0 && !captures.compare_exchange_weak(open, open - 1)) {
  }
}

bool serve_allocate(Library library, void** out, std::size_t bytes, int& result) {
  const Entry entry = library == Library::kDriver ? Entry::k_cuMemAlloc_v2 : Entry::k_cudaMalloc;
  if (mode() == Mode::kPassThrough || out == nullptr || bytes == 0) return false;
  if (captures.load() > 0) return refuse("a CUDA graph is being captured");
  if (!next_is_cuda(entry)) return false;
  const HeapLibrary* heap = heap_library();
  if (heap == nullptr) return refuse_for_good(heap_library_error());
  const Context* context = context_of(library);
  int device = -1;
  if (context == nullptr || context->get_device(&device) != CUDA_SUCCESS) {
    return refuse("this thread has no device");
  }
  void* block = nullptr;
  const int code = heap->allocate(device, bytes, nullptr, &block);
  if (code == SPILLWAY_OUT_OF_DEVICE_MEMORY) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
    return true;
  }
  if (code != SPILLWAY_OK) return refuse(heap->last_error());
  // The block is ordered on the default stream; the program may use it on any stream.
  context->synchronize_stream(nullptr);
  anything_served.store(true);
  served().add(block);
  *out = block;
  result = CUDA_SUCCESS;
  return true;
}

bool serve_free(Library library, void* at, int& result) {
  if (at == nullptr || !anything_served.load() || !served().take(at)) return false;
  // As cudaFree: the streams that have used it are unknown.
  if (const Context* context = context_of(library); context != nullptr) {
    result = context->synchronize();
  }
  const int code = heap_library()->release(at);
  if (result == CUDA_SUCCESS && code != SPILLWAY_OK) result = CUDA_ERROR_INVALID_VALUE;
  return true;
}

bool serve_ipc(const void* at, int& result) {
  if (!anything_served.load() || !served().holds(at)) return false;
  refuse("memory from Spillway's heap has no CUDA IPC handle. Run with SPILLWAY_PRELOAD=observe.");
  result = CUDA_ERROR_NOT_SUPPORTED;
  return true;
}

}  // namespace spillway::interpose
