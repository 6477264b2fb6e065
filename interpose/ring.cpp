// SPDX-License-Identifier: Apache-2.0
#include "interpose/ring.h"

#include <sys/mman.h>

namespace spillway::interpose {

Event* Ring::memory() {
  void* at = mmap(
      nullptr, kEvents * sizeof(Event), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* events = static_cast<Event*>(at);
  events_.store(events, std::memory_order_release);
  return events;
}

}  // namespace spillway::interpose
