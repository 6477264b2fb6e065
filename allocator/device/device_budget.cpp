// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/device_budget.h"

#include <utility>

namespace spillway {

Bytes DeviceBudget::heap_bytes_of(const Budget& budget) const {
  const Bytes most = bytes_of(budget);
  return most >= heap_.limits().smallest_budget() ? most : Bytes{};
}

Status DeviceBudget::learn_memory(Bytes reserved) {
  SPILLWAY_ASSIGN_OR_RETURN(const driver::MemoryInfo memory, driver::memory_info(device_));
  total_ = memory.total.count();
  available_ = (memory.free + reserved).count();
  return {};
}

Status DeviceBudget::hold(const Budget& budget) {
  if (budget.share > 0 && !has_memory()) {
    SPILLWAY_RETURN_IF_ERROR(learn_memory(heap_.view().reserved()));
  }
  const Bytes bytes = heap_bytes_of(budget);
  heap_.limits().hold_budget(bytes);
  of_job_ = bytes.count();
  return {};
}

void DeviceBudget::set_step(Step step) {
  const Lock lock(mutex_);
  step_ = std::move(step);
}

DeviceBudget::Step DeviceBudget::step() const {
  const Lock lock(mutex_);
  return step_;
}

}  // namespace spillway
