// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/memory_events.h"

#include "allocator/base/check.h"

namespace spillway {

std::atomic<int> MemoryEvents::observers_on_{0};
std::array<std::atomic<MemoryObserver*>, MemoryEvents::kMaxObservers> MemoryEvents::observers_{};

void MemoryEvents::subscribe(MemoryObserver& observer) {
  for (auto& each : observers_) {
    MemoryObserver* none = nullptr;
    if (!each.compare_exchange_strong(none, &observer)) continue;
    ++observers_on_;
    return;
  }
  SPILLWAY_CHECK(false && "too many observers");
}

void MemoryEvents::unsubscribe(MemoryObserver& observer) {
  for (auto& each : observers_) {
    MemoryObserver* expected = &observer;
    if (each.compare_exchange_strong(expected, nullptr)) --observers_on_;
  }
}

template <typename Report>
void MemoryEvents::each(Report report) {
  for (const auto& each : observers_) {
    if (MemoryObserver* const observer = each.load(std::memory_order_acquire)) report(*observer);
  }
}

void MemoryEvents::born(const BornBlock& block) {
  each([&](MemoryObserver& observer) { observer.born(block); });
}

void MemoryEvents::died(DeviceId device, std::uint64_t address) {
  each([&](MemoryObserver& observer) { observer.died(device, address); });
}

void MemoryEvents::retagged(DeviceId device, std::uint64_t address, TagId tag) {
  each([&](MemoryObserver& observer) { observer.retagged(device, address, tag); });
}

void MemoryEvents::used(DeviceId device, std::uint64_t address) {
  each([&](MemoryObserver& observer) { observer.used(device, address); });
}

void MemoryEvents::tag_step_ended(TagId tag, const TagStepStats& step) {
  each([&](MemoryObserver& observer) { observer.tag_step_ended(tag, step); });
}

void MemoryEvents::step_ended() {
  each([&](MemoryObserver& observer) { observer.step_ended(); });
}

}  // namespace spillway
