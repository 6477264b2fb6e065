// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/follow_torch.h"

#include "allocator/lifetime/memory_events.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>

namespace spillway {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr Bytes kBlock{512};  // that allocator rounds up to this

void follow(const caching::TraceEntry& event) {
  if (!MemoryEvents::on()) return;
  const DeviceId device{event.device_};
  if (event.action_ == caching::TraceEntry::ALLOC) {
    MemoryEvents::born({.device = device,
                        .address = event.addr_,
                        .requested = Bytes{event.size_},
                        .rounded = Bytes{event.size_}.rounded_up(kBlock)});
  } else if (event.action_ == caching::TraceEntry::FREE_REQUESTED) {
    MemoryEvents::died(device, event.addr_);
  }
}

}  // namespace

void follow_torch_memory() {
  static std::once_flag once;
  std::call_once(once, [] { caching::attachAllocatorTraceTracker(follow); });
}

}  // namespace spillway
