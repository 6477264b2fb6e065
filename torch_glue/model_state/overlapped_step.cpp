// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/overlapped_step.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/cuda_allocator/side_stream.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/managed_storages.h"

#include <algorithm>
#include <atomic>

namespace spillway {
namespace {

std::atomic<std::uint64_t> slices{0};

/// A small tensor in memory of our heap, without any other tensor over its storage.
bool is_small(const at::Tensor& tensor, DeviceRuntime& device) {
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return false;
  const c10::Storage& storage = tensor.storage();
  const c10::StorageImpl* const memory = storage.unsafeGetStorageImpl();
  return memory != nullptr && memory->nbytes() < ManagedStorages::instance().min_bytes().count() &&
         tensor.is_non_overlapping_and_dense() && compat::holders_in_cpp(storage, *memory) == 1 &&
         device.heap().owns(driver::DevicePtr(storage.data()));
}

bool may_overlap(const at::Tensor& tensor, DeviceRuntime& device) {
  if (tensor.device().index() != static_cast<c10::DeviceIndex>(device.device().id)) return false;
  ManagedStorage* const managed = ManagedStorage::of(tensor);
  if (managed == nullptr) return is_small(tensor, device);
  return managed->may_be_used_beside(tensor.storage(), current_stream(device.device().id));
}

}  // namespace

bool begin_overlapped(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return false;
  DeviceRuntime* const device =
      Runtime::instance().devices().if_made(DeviceId{tensors.front().device().index()});
  if (device == nullptr || !ManagedStorages::instance().overlaps_step(*device)) return false;
  const bool all = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& each) {
    return may_overlap(each, *device);
  });
  if (!all || !SideStream::enter(*device)) return false;
  ++slices;
  const auto stream = current_stream(device->device().id);
  for (const at::Tensor& each : tensors) {
    if (ManagedStorage::of(each) != nullptr) continue;
    set_guarded(each);  // its uses join the side stream
    SpillwayAllocator::instance().record_use(each.storage().mutable_data(), stream);
  }
  return true;
}

std::uint64_t overlapped_slices() {
  return slices;
}

void end_overlapped() {
  SideStream::leave();
}

}  // namespace spillway
