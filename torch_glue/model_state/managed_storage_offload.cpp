// SPDX-License-Identifier: Apache-2.0
// How a managed storage leaves the device, and how its host copy is made and read.
#include "allocator/base/log.h"
#include "allocator/driver/timeline.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/managed_storage.h"
#include "torch_glue/model_state/managed_storages.h"

#include <cstring>
#include <mutex>
#include <utility>

namespace spillway {

bool ManagedStorage::may_leave(const c10::intrusive_ptr<c10::StorageImpl>& alive) {
  if (!on_device_ || kept() || pins_ != 0 || ManagedStorage::of(*alive) != this) return false;
  const ManagedStorages& all = ManagedStorages::instance();
  if (all.keeps_all() || kept_in_step_ == all.step()) return false;
  if (captures()) return false;
  if (!only_keyed(compat::holders_in_cpp(alive, *alive) - 1)) {
    refused_ = ResidentReason::kReferenced;
    return false;
  }
  const HeapBlockInfo block = place_.device.heap().find(driver::DevicePtr(block_));
  tag_ = block.tag;
  // Other processes may have its memory mapped.
  if (block.shared) kept_ = ResidentReason::kShared;
  return !kept();
}

bool ManagedStorage::captures() const {
  const auto& allocator = SpillwayAllocator::instance();
  return allocator.captures(current_stream(place_.device.device().id).stream()) ||
         allocator.captures(home_);
}

Bytes ManagedStorage::offload() {
  const auto alive =
      storage_.lock();  // its last reference may be this one, and ends without the lock
  if (!alive || !mutex_.try_lock()) return {};
  void* left = nullptr;
  {
    const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
    left = leave(alive);
  }
  if (left == nullptr) return {};
  const ModelStateBlocks model_state;
  SpillwayAllocator::instance().release(left);
  return size_;
}

bool ManagedStorage::read_offloaded(std::byte* to) {
  pins_.fetch_add(1);  // from here on its host copy stays
  HostBytes bytes{};
  driver::Fence written;
  {
    const LightLock lock(mutex_);
    if (!on_device_) {
      bytes = host_.bytes();
      written = host_.written();
    }
  }
  const Status waited = written.set() ? driver::Timeline::wait_sync(written) : Status();
  if (bytes.data != nullptr && waited.ok()) std::memcpy(to, bytes.data, size_.count());
  unpin();
  check(waited);
  return bytes.data != nullptr;
}

Bytes ManagedStorage::copy_ahead() {
  const auto alive = storage_.lock();
  if (!alive || !mutex_.try_lock()) return {};
  const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
  if (is_clean() || !close(alive)) return {};
  const Status copied = copy_out();
  if (copied.ok()) {
    host_.set_offloaded(false);
    changed_ = false;
    copied_ = true;
  }
  on_device_ = true;
  return copied.ok() ? size_ : Bytes{};
}

void* ManagedStorage::leave(const c10::intrusive_ptr<c10::StorageImpl>& alive) {
  if (!close(alive)) return nullptr;
  if (is_clean()) {
    if (ManagedStorages::instance().chaotic() && awaited_) verify();
    host_.set_offloaded(true);
    ManagedStorages::instance().count_drop(size_);
  } else if (const Status left = copy_out(); !left.ok()) {
    on_device_ = true;
    if (left.code() == Code::kOutOfHostMemory) {
      refused_ = ResidentReason::kNoHostMemory;
      ManagedStorages::instance().note_host_shortage(left);
    }
    if (log_enabled()) log("a storage of the model stays on the GPU: " + left.message());
    return nullptr;
  }
  refused_ = ResidentReason::kNone;
  set_address(*alive, address_.raw());
  return std::exchange(block_, nullptr);
}

bool ManagedStorage::close(const c10::intrusive_ptr<c10::StorageImpl>& alive) {
  if (!may_leave(alive)) return false;
  on_device_ = false;
  if (pins_ == 0) return true;
  on_device_ = true;
  return false;
}

Status ManagedStorage::copy_out() {
  if (address_ == driver::DevicePtr()) {
    SPILLWAY_ASSIGN_OR_RETURN(address_, place_.addresses.take(size_));
  }
  // Its bytes are of no use, and its memory may be what the new copy needs.
  host_ = Stash();
  has_host_ = false;
  const driver::DevicePtr block(block_);
  if (!awaited_) {
    SPILLWAY_RETURN_IF_ERROR(driver::Timeline::wait(place_.device.copies().out_stream(), arrival_));
  }
  // A program that has its address may use it on streams that only record_stream() reports.
  if (!others_.empty() || kept_in_step_ != 0) {
    SPILLWAY_ASSIGN_OR_RETURN(const driver::FenceSet uses,
                              place_.device.heap().last_uses({&block, 1}));
    SPILLWAY_RETURN_IF_ERROR(uses.wait(place_.device.copies().out_stream()).status());
  }
  SPILLWAY_ASSIGN_OR_RETURN(host_,
                            place_.device.residency().stash(
                                block, size_, driver::Stream(home_, place_.device.device().id)));
  has_host_ = true;
  ManagedStorages::instance().count_offload(size_);
  return {};
}

void ManagedStorage::verify() {
  const driver::DevicePtr block(block_);
  const auto uses = place_.device.heap().last_uses({&block, 1});
  if (!uses.ok()) return;
  check(uses.value().wait_sync());
  auto copy = place_.device.residency().stash(
      block, size_, driver::Stream(home_, place_.device.device().id));
  if (!copy.ok()) return;
  check(driver::Timeline::wait_sync(host_.written()));
  check(driver::Timeline::wait_sync(copy.value().written()));
  if (std::memcmp(copy.value().bytes().data, host_.bytes().data, size_.count()) != 0)
    ManagedStorages::instance().count_stale();
}

}  // namespace spillway
