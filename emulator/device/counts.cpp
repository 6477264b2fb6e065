// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/counts.h"

namespace spillway::emulator {
namespace {

constinit std::atomic<Counter*> newest{nullptr};

}  // namespace

void Counter::enlist() {
  next_ = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(next_, this, std::memory_order_release)) {
  }
}

std::uint64_t Counter::of(std::string_view name) {
  for (const Counter* each = newest.load(std::memory_order_acquire); each != nullptr;
       each = each->next_) {
    if (name == each->name_) return each->count_.load(std::memory_order_relaxed);
  }
  return 0;
}

}  // namespace spillway::emulator
