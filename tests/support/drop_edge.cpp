// SPDX-License-Identifier: Apache-2.0
// Preloaded before the emulated GPU, this library wraps its driver lookup and omits one
// kind of wait between streams, as a Spillway without it would. Spillway itself is unchanged.
//
//   DROP_EDGE=producer     the copy out does not wait for the stream that made the tensor
//            source        the stream that gets the source's block does not wait for the copy out
//            destination   the copy in does not wait for what last used its destination
//            consumer      the stream that unpacks does not wait for the copy in
//
// Event queries answer "not ready": one that comes late enough would order what a missing wait does
// not.
#include "emulator/emulator.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

enum class Queue { kCompute, kOut, kIn };

struct Edge {
  const char* name;
  Queue waiter;
  Queue on;
};

constexpr Edge kEdges[] = {{"producer", Queue::kOut, Queue::kCompute},
                           {"source", Queue::kCompute, Queue::kOut},
                           {"destination", Queue::kIn, Queue::kCompute},
                           {"consumer", Queue::kCompute, Queue::kIn}};

std::mutex mutex;
std::map<CUevent, CUstream> recorded_on;
CUstream copy_streams[4] = {};  // in the order of creation: out, in, out, in
int created = 0;
unsigned long long dropped = 0;

PFN_cuStreamCreateWithPriority_v5050 real_create = nullptr;
PFN_cuEventRecord_v2000 real_record = nullptr;
PFN_cuStreamWaitEvent_v3020 real_wait = nullptr;

const Edge* edge() {
  const char* name = std::getenv("DROP_EDGE");
  for (const Edge& each : kEdges) {
    if (name != nullptr && std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}

Queue queue_of(CUstream stream) {
  for (int each = 0; each < 4; ++each) {
    if (stream == copy_streams[each]) return each % 2 == 0 ? Queue::kOut : Queue::kIn;
  }
  return Queue::kCompute;
}

CUresult create(CUstream* stream, unsigned flags, int priority) {
  const CUresult result = real_create(stream, flags, priority);
  const std::lock_guard lock(mutex);
  if (result == CUDA_SUCCESS && created < 4) copy_streams[created++] = *stream;
  return result;
}

CUresult record(CUevent event, CUstream stream) {
  {
    const std::lock_guard lock(mutex);
    recorded_on[event] = stream;
  }
  return real_record(event, stream);
}

CUresult wait(CUstream stream, CUevent event, unsigned flags) {
  static const Edge* const missing = edge();
  {
    const std::lock_guard lock(mutex);
    if (missing != nullptr && queue_of(stream) == missing->waiter &&
        queue_of(recorded_on[event]) == missing->on) {
      ++dropped;
      return CUDA_SUCCESS;
    }
  }
  return real_wait(stream, event, flags);
}

CUresult query(CUevent) {
  return CUDA_ERROR_NOT_READY;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned long long dropped_waits() {
  const std::lock_guard lock(mutex);
  return dropped;
}

extern "C" __attribute__((visibility("default"))) void* spillway_emulator_proc_address(
    const char* name, int version) {
  using Lookup = void* (*)(const char*, int);
  static const auto next =
      reinterpret_cast<Lookup>(dlsym(RTLD_NEXT, "spillway_emulator_proc_address"));
  void* const real = next(name, version);
  const std::string asked(name);
  if (asked == "cuStreamCreateWithPriority") {
    real_create = reinterpret_cast<decltype(real_create)>(real);
    return reinterpret_cast<void*>(&create);
  }
  if (asked == "cuEventRecord") {
    real_record = reinterpret_cast<decltype(real_record)>(real);
    return reinterpret_cast<void*>(&record);
  }
  if (asked == "cuStreamWaitEvent") {
    real_wait = reinterpret_cast<decltype(real_wait)>(real);
    return reinterpret_cast<void*>(&wait);
  }
  return asked == "cuEventQuery" ? reinterpret_cast<void*>(&query) : real;
}
