// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shadows.h"

#include "emulator/operators/aliasing.h"
#include "emulator/operators/runtime.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace spillway::operators {
namespace {

/// Never destroyed: operators run until the very end of the process.
struct Captures {
  std::mutex mutex;
  std::vector<CUstream> streams;  // that are captured, as far as is known
  std::shared_ptr<Shadows> shadows;
};

Captures& captures() {
  static auto* all = new Captures;
  return *all;
}

std::atomic<bool> any{false};

}  // namespace

c10::Storage Shadows::of(const c10::Storage& device) {
  const void* at = address(device);
  const std::scoped_lock lock(mutex_);
  const auto known = by_address_.find(at);
  if (known != by_address_.end() && known->second.nbytes() >= device.nbytes()) return known->second;
  c10::Storage copy(c10::Storage::use_byte_size_t(),
                    c10::SymInt(static_cast<int64_t>(device.nbytes())),
                    c10::GetCPUAllocator(),
                    device.resizable());
  if (device.nbytes() != 0) std::memcpy(copy.mutable_data(), at, device.nbytes());
  by_address_[at] = copy;
  return copy;
}

void Shadows::put(const void* device, c10::Storage host) {
  const std::scoped_lock lock(mutex_);
  by_address_[device] = std::move(host);
}

std::shared_ptr<Shadows> shadows(CUstream stream) {
  Captures& all = captures();
  const std::scoped_lock lock(all.mutex);
  if (std::find(all.streams.begin(), all.streams.end(), stream) == all.streams.end()) {
    all.streams.push_back(stream);
  }
  if (!all.shadows) all.shadows = std::make_shared<Shadows>();
  any.store(true, std::memory_order_release);
  return all.shadows;
}

void drop_shadows_after_capture() {
  if (!any.load(std::memory_order_acquire)) return;
  Captures& all = captures();
  const std::scoped_lock lock(all.mutex);
  std::erase_if(all.streams,
                [](CUstream stream) { return emulated_runtime().capturing(stream) == 0; });
  if (!all.streams.empty()) return;
  all.shadows.reset();
  any.store(false, std::memory_order_release);
}

}  // namespace spillway::operators
