// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include "allocator/device/fork.h"
#include "allocator/device/out_of_memory.h"
#include "allocator/heap/deferred_waits.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/allocator_stats.h"
#include "torch_glue/cuda_allocator/side_stream.h"

#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway {
namespace {

/// For destructors: the heap counts an address that is not ours, without an error.
void delete_block(void* at) {
  SpillwayAllocator::instance().release(at);
}

CUstream current_stream(c10::DeviceIndex device) {
  return c10::cuda::getCurrentCUDAStream(device).stream();
}

/// Calls the registered callbacks (PyTorch's IPC, Spillway's pending sources) to free memory; true
/// if one did.
bool run_free_memory_callbacks() {
  bool freed = false;
  for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return freed;
}

void report(void* at, std::int64_t change, DeviceRuntime& runtime, c10::DeviceIndex device) {
  if (!c10::memoryProfilingEnabled()) return;
  const Heap& heap = runtime.heap();
  c10::reportMemoryUsageToProfiler(at,
                                   change,
                                   heap.view().allocated().count(),
                                   heap.view().reserved().count(),
                                   c10::Device(c10::DeviceType::CUDA, device));
}

}  // namespace

SpillwayAllocator::SpillwayAllocator() : checkpoints_(&delete_block) {}

SpillwayAllocator& SpillwayAllocator::instance() {
  static auto* const allocator = new SpillwayAllocator;
  return *allocator;
}

DeviceRuntime& SpillwayAllocator::device(c10::DeviceIndex index) {
  auto& known = devices_.at(static_cast<size_t>(index));
  if (auto* runtime = known.load(std::memory_order_acquire)) return *runtime;
  auto made = Runtime::instance().device(DeviceId{index});
  TORCH_CHECK_VALUE(
      made.status().code() != Code::kInvalidArgument, "Spillway: ", made.status().detail());
  check(made.status());
  known.store(made.value(), std::memory_order_release);
  return *made.value();
}

DeviceRuntime* SpillwayAllocator::owner(const void* at) {
  for (auto& known : devices_) {
    auto* const runtime = known.load(std::memory_order_acquire);
    if (runtime != nullptr && runtime->heap().owns(driver::DevicePtr(at))) return runtime;
  }
  return nullptr;
}

c10::DataPtr SpillwayAllocator::allocate(size_t size) {
  const c10::DeviceIndex index = current_device();
  void* const at = allocate_on(index, size, current_stream(index));
  // The context is the pointer itself: raw_deallocate and oneDNN's raw allocations rely on it.
  return {at, at, raw_deleter(), c10::Device(c10::DeviceType::CUDA, index)};
}

void* SpillwayAllocator::allocate_on(c10::DeviceIndex index, size_t size, cudaStream_t stream) {
  if (SideStream* const side = SideStream::entered_as(stream))
    return allocate_on_side(index, size, *side);
  DeviceRuntime& runtime = device(index);
  if (pools_.any_open()) return allocate_with_pools(index, runtime, size, stream);
  const auto block = runtime.allocate(Bytes{size}, driver::Stream(stream, runtime.device().id));
  if (!block.ok()) return allocate_again(index, {}, size, stream, block.status());
  void* const at = block.value().raw();
  report_handed_out(index, runtime, at, size, stream, {0, 0});
  return at;
}

void* SpillwayAllocator::allocate_on_side(c10::DeviceIndex index, size_t size, SideStream& side) {
  const DeferredWaits waits;
  void* const at = allocate_on(index, size, side.home().stream());
  if (at == nullptr) return at;
  try {
    side.take(waits.fences());
    record_use(at, side.stream());
  } catch (...) {
    for (const driver::Fence fence : waits.fences())
      device(index).heap().add_fence(driver::DevicePtr(at), fence);
    release(at);
    throw;
  }
  return at;
}

void* SpillwayAllocator::allocate_with_pools(c10::DeviceIndex index,
                                             DeviceRuntime& runtime,
                                             size_t size,
                                             cudaStream_t stream) {
  // Driver calls of the heap must not end a capture in progress.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  const TorchPool pool = pools_.route(index, stream);
  const auto block = allocate_in(pool, runtime, size, stream);
  if (!block.ok()) return allocate_again(index, pool, size, stream, block.status());
  report_handed_out(index, runtime, block.value(), size, stream, pool.name);
  return block.value();
}

void* SpillwayAllocator::allocate_again(c10::DeviceIndex index,
                                        const TorchPool& pool,
                                        size_t size,
                                        cudaStream_t stream,
                                        const Status& why) {
  if (OptionalAllocation::active()) C10_THROW_ERROR(OutOfMemoryError, why.detail());
  DeviceRuntime& runtime = device(index);
  const auto block = allocate_elsewhere(index, pool, size, stream, why);
  if (block.status().code() == Code::kOutOfDeviceMemory) {
    out_of_memory(index, size, block.status());
  }
  check(block.status());
  report_handed_out(index, runtime, block.value(), size, stream, pool.name);
  return block.value();
}

inline void SpillwayAllocator::report_handed_out(c10::DeviceIndex index,
                                                 DeviceRuntime& runtime,
                                                 void* at,
                                                 size_t size,
                                                 cudaStream_t stream,
                                                 c10::MempoolId_t pool) {
  if (at == nullptr) return;
  if (history_.on()) report_allocated(index, runtime, at, size, stream, pool);
  report(at, static_cast<std::int64_t>(size), runtime, index);
}

Result<void*> SpillwayAllocator::allocate_elsewhere(c10::DeviceIndex index,
                                                    const TorchPool& pool,
                                                    size_t size,
                                                    cudaStream_t stream,
                                                    const Status& why) {
  {
    const Lock lock(mutex_);
    ++retries_[index];
  }
  DeviceRuntime& runtime = device(index);
  if (run_free_memory_callbacks()) {
    auto block = allocate_in(pool, runtime, size, stream);
    if (block.ok()) return block;
  }
  if (pool.id != PoolId::kShared) return why;
  for (const TorchPool& lent : pools_.last_resorts(index)) {
    auto found = allocate_in(lent, runtime, size, stream);
    if (found.ok()) return found;
  }
  return why;
}

void SpillwayAllocator::out_of_memory(c10::DeviceIndex index, size_t size, const Status& why) {
  DeviceRuntime& runtime = device(index);
  const auto [available, total] = getMemoryInfo(index);
  const Heap& heap = runtime.heap();
  const Bytes limit = heap.limits().limit();
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(size),
                                   heap.view().allocated().count(),
                                   heap.view().reserved().count(),
                                   c10::Device(c10::DeviceType::CUDA, index));
  if (history_.on()) {
    history_.record({TraceEntry::OOM, index, available, size, current_stream(index), {0, 0}},
                    history_.gather(RecordContext::ALLOC));
  }
  std::vector<ccc::OutOfMemoryObserver> observers;
  {
    const Lock lock(mutex_);
    ++out_of_memory_[index];
    observers = observers_;
  }
  for (const auto& observer : observers) {
    observer(index, size, limit.zero() ? total : limit.count(), available);
  }
  C10_THROW_ERROR(OutOfMemoryError, out_of_memory_text(runtime, Bytes{size}, why));
}

void SpillwayAllocator::raw_delete(void* at) {
  TORCH_CHECK(release(at),
              "Spillway: raw_delete(",
              at,
              "): the address is not that of an allocated block of Spillway's allocator, but was "
              "freed before or comes from another one");
}

bool SpillwayAllocator::release(void* at) {
  if (at == nullptr || in_forked_child()) return true;
  if (!pools_.any_open()) return release_now(at);
  // As in allocate_with_pools.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  return captured_uses_.defer(at) || release_now(at);
}

inline bool SpillwayAllocator::release_now(void* at) {
  if (DeviceRuntime* const runtime = owner(at)) return free_block(*runtime, at);
  const auto memory = provider_of(at);
  return memory && free_provided(*memory, at);
}

inline bool SpillwayAllocator::free_block(DeviceRuntime& runtime, void* at) {
  const bool profiled = c10::memoryProfilingEnabled();
  if (!profiled && !history_.on() && !checkpoints_.any()) {
    return runtime.free(driver::DevicePtr(at));
  }
  const auto index = static_cast<c10::DeviceIndex>(runtime.device().id);
  const HeapBlockInfo block = runtime.heap().find(driver::DevicePtr(at));
  // The heap refuses and counts an address at which no block starts.
  if (!block.allocated || block.at.raw() != at) return runtime.free(driver::DevicePtr(at));
  if (history_.on()) report_freed(index, block);
  if (!checkpoints_.park(block.pool, at)) runtime.free(block.at);
  if (profiled) {
    report(at, -static_cast<std::int64_t>(block.requested.count()), runtime, index);
  }
  return true;
}

bool SpillwayAllocator::free_provided(ProviderMemory& memory, void* at) {
  const auto [base, block] = memory.find(at);
  if (base != at) return false;
  if (history_.on()) {
    HeapBlockInfo info;
    info.at = driver::DevicePtr(at);
    info.requested = block.requested;
    info.stream = block.stream;
    report_freed(memory.device(), info);
  }
  memory.free(at);
  return true;
}

c10::DeleterFnPtr SpillwayAllocator::raw_deleter() const {
  return &delete_block;
}

void SpillwayAllocator::copy_data(void* to, const void* from, size_t size) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice));
}

void* SpillwayAllocator::raw_alloc(size_t size) {
  const c10::DeviceIndex index = current_device();
  return allocate_on(index, size, current_stream(index));
}

void* SpillwayAllocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return allocate_on(current_device(), size, stream);
}

void SpillwayAllocator::init(int device_count) {
  TORCH_CHECK(device_count <= static_cast<int>(devices_.size()),
              "Spillway: ",
              device_count,
              " devices are visible, and at most ",
              devices_.size(),
              " are supported. Hide some with CUDA_VISIBLE_DEVICES.");
  device_count_.store(device_count, std::memory_order_relaxed);
  initialized_.store(true, std::memory_order_release);
}

bool SpillwayAllocator::initialized() {
  return initialized_.load(std::memory_order_acquire);
}

void SpillwayAllocator::recordStream(const c10::DataPtr& at, c10::cuda::CUDAStream stream) {
  // Memory of other owners (IPC, from_blob) is protected by its owner. Managed storages have owners
  // of their own over blocks of our heap.
  if (!at || (at.get_deleter() != raw_deleter() && owner(at.get()) == nullptr)) return;
  record_use(at.get(), stream);
}

bool SpillwayAllocator::captures(cudaStream_t stream) const {
  if (!pools_.any_open()) return false;
  cudaStreamCaptureStatus status{};
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

void SpillwayAllocator::record_use(void* at, c10::cuda::CUDAStream stream) {
  if (captures(stream.stream())) return captured_uses_.add(at);
  const driver::Stream user(stream.stream(), DeviceId{stream.device_index()});
  if (DeviceRuntime* const runtime = owner(at)) {
    return check(runtime->record_use(driver::DevicePtr(at), user));
  }
  if (const auto memory = provider_of(at)) memory->record_use(at, stream.stream());
}

void SpillwayAllocator::emptyCache(c10::MempoolId_t pool) {
  // Memory of a pool in use stays: graphs write to their pools' free memory.
  trim_providers();
  if (pool != c10::MempoolId_t{0, 0}) return;
  for (auto& known : devices_) {
    auto* const runtime = known.load(std::memory_order_acquire);
    if (runtime == nullptr) continue;
    runtime->heap().trim_sync();
    if (history_.on()) {
      report_mapping(static_cast<c10::DeviceIndex>(runtime->device().id), *runtime, nullptr);
    }
  }
}

void* SpillwayAllocator::getBaseAllocation(void* at, size_t* size) {
  if (DeviceRuntime* const runtime = owner(at)) {
    const HeapBlockInfo block = runtime->heap().find(driver::DevicePtr(at));
    TORCH_CHECK(block.allocated,
                "Spillway: getBaseAllocation(",
                at,
                "): the address is not in an allocated block: its block was freed");
    if (size != nullptr) *size = block.size.count();
    return block.at.raw();
  }
  const auto memory = provider_of(at);
  TORCH_CHECK(memory,
              "Spillway: getBaseAllocation(",
              at,
              "): the address is not in memory of Spillway's allocator");
  const auto [base, block] = memory->find(at);
  if (size != nullptr) *size = block.size.count();
  return base;
}

std::pair<size_t, size_t> SpillwayAllocator::getMemoryInfo(c10::DeviceIndex index) {
  const auto memory = driver::memory_info(device(index).device());
  check(memory.status());
  return {memory.value().free.count(), memory.value().total.count()};
}

void SpillwayAllocator::cacheInfo(c10::DeviceIndex index, size_t* largest) {
  *largest = std::max(*largest, getMemoryInfo(index).first);
  for (const HeapSegmentInfo& segment : device(index).heap().view().segments()) {
    for (const HeapBlockInfo& block : segment.blocks) {
      if (!block.allocated) *largest = std::max<size_t>(*largest, block.size.count());
    }
  }
}

double SpillwayAllocator::getMemoryFraction(c10::DeviceIndex index) {
  const Bytes limit = device(index).limits().of(DeviceLimits::Limit::kFraction);
  if (limit.zero()) return 1.0;
  return static_cast<double>(limit.count()) / static_cast<double>(getMemoryInfo(index).second);
}

void SpillwayAllocator::setMemoryFraction(double fraction, c10::DeviceIndex index) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1,
                    "Spillway: memory fraction ",
                    fraction,
                    ": expected a number from 0 to 1");
  const auto total = static_cast<double>(getMemoryInfo(index).second);
  // A limit of zero bytes would mean none.
  const auto limit =
      fraction == 1 ? 0 : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(total * fraction));
  check(device(index).limits().set(DeviceLimits::Limit::kFraction, Bytes{limit}));
}

void SpillwayAllocator::attachOutOfMemoryObserver(ccc::OutOfMemoryObserver observer) {
  const Lock lock(mutex_);
  observers_.push_back(std::move(observer));
}

Status use_allocator() {
  SpillwayAllocator& ours = SpillwayAllocator::instance();
  ccc::CUDAAllocator* const now = ccc::allocator.load();
  if (now == &ours) return {};
  if (now->initialized()) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "CUDA has already started with the allocator '" + now->name() +
                              "'. Call spillway.use_allocator() before anything touches the GPU; "
                              "`spillway run` selects Spillway's allocator only with a memory "
                              "option such as --budget.");
  }
  SPILLWAY_RETURN_IF_ERROR(RuntimeOptions::from_environment().status());
  ccc::allocator.store(&ours);
  // torch.accelerator finds the allocator here; PyTorch's own is registered with priority 0.
  c10::SetAllocator(c10::DeviceType::CUDA, &ours, 255);
  return {};
}

}  // namespace spillway
