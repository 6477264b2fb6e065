// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/pluggable/hooks.h"

#include "allocator/abi/pluggable.h"
#include "allocator/base/mutex.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

using torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

SpillwayAllocator& ours() {
  return SpillwayAllocator::instance();
}

void* allocate(size_t size, int device, void* stream) {
  return ours().allocate_on(
      static_cast<c10::DeviceIndex>(device), size, static_cast<cudaStream_t>(stream));
}

void release(void* at) {
  ours().release(at);
  // PyTorch's own allocator caches the segments of its MemPools itself. It frees them for the whole
  // process, as with cudaFree.
  if (!serves_torch()) ours().emptyCache({0, 0});
}

constexpr TorchMemory kMemory{&allocate, &release};

c10::DeviceIndex index_of(int device) {
  return static_cast<c10::DeviceIndex>(device);
}

/// The pluggable allocators that have our functions.
class Installed {
 public:
  static Installed& instance() {
    static auto* const installed = new Installed;
    return *installed;
  }

  void add(const std::shared_ptr<ccc::CUDAAllocator>& allocator) {
    const Lock lock(mutex_);
    all_.push_back(allocator);
  }

  bool empty() {
    const Lock lock(mutex_);
    return all_.empty();
  }

  bool has(const ccc::CUDAAllocator* allocator) {
    const Lock lock(mutex_);
    return std::any_of(
        all_.begin(), all_.end(), [&](const auto& each) { return each.lock().get() == allocator; });
  }

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<ccc::CUDAAllocator>> all_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace

bool serves_torch() {
  ccc::CUDAAllocator* const now = ccc::allocator.load();
  if (now == &ours() || Installed::instance().has(now)) return true;
  const bool pluggable = dynamic_cast<CUDAPluggableAllocator*>(now) != nullptr;
  return pluggable && Installed::instance().empty() && pluggable_has_served();
}

void install_pluggable_hooks(const std::shared_ptr<ccc::CUDAAllocator>& allocator) {
  auto* const pluggable = dynamic_cast<CUDAPluggableAllocator*>(allocator.get());
  TORCH_CHECK_TYPE(pluggable != nullptr,
                   "Spillway: allocator '",
                   allocator ? allocator->name() : "None",
                   "' is not a CUDAPluggableAllocator. Pass the result of "
                   "spillway.memory.pluggable_allocator()");
  serve_pluggable(kMemory);
  Installed::instance().add(allocator);
  pluggable->set_init_fn([](int device_count) { ours().init(device_count); });
  pluggable->set_reset_fn([] { ours().emptyCache({0, 0}); });
  pluggable->set_memory_fraction_fn(
      [](double fraction, int device) { ours().setMemoryFraction(fraction, index_of(device)); });
  pluggable->set_base_alloc_fn(
      [](void* at, size_t* size) { return ours().getBaseAllocation(at, size); });
  pluggable->set_record_stream_fn([](void* at, cudaStream_t stream) {
    ours().record_use(at, c10::cuda::getStreamFromExternal(stream, c10::cuda::current_device()));
  });
  pluggable->set_begin_allocate_to_pool(
      [](int device, c10::MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
        ours().beginAllocateToPool(index_of(device), pool, std::move(filter));
      });
  pluggable->set_end_allocate_to_pool_fn(
      [](int device, c10::MempoolId_t pool) { ours().endAllocateToPool(index_of(device), pool); });
  pluggable->set_release_pool(
      [](int device, c10::MempoolId_t pool) { ours().releasePool(index_of(device), pool); });
}

}  // namespace spillway
