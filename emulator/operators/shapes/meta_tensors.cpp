// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/meta_tensors.h"

#include "emulator/operators/aliasing.h"
#include "emulator/operators/layouts.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/shapes/assumed_values.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>

namespace spillway::operators {
namespace {

c10::Storage storage_over(size_t bytes, at::DataPtr memory, c10::Allocator* allocator) {
  return {c10::Storage::use_byte_size_t(), bytes, std::move(memory), allocator, /*resizable=*/true};
}

}  // namespace

c10::IValue MetaTensors::to_meta(const c10::IValue& value) {
  if (value.isDevice() && value.toDevice().is_cuda()) return at::Device(at::kMeta);
  return map_tensors(value, [this](const at::Tensor& tensor) { return to_meta(tensor); });
}

at::Tensor MetaTensors::to_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) {
    if (tensor.is_meta() || tensor.dim() == 0) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(is_strided(tensor),
                              name_,
                              ": only strided tensors have shapes without values. Use spillway "
                              "emulate.");
  for (const Argument& known : arguments_) {
    if (known.original.is_same(tensor)) return known.meta;
  }
  at::Tensor meta = shaped(meta_of(tensor.storage()), tensor, c10::DispatchKey::Meta);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  argument_of_.add(meta.unsafeGetTensorImpl());
  arguments_.push_back({tensor, meta});
  return meta;
}

const c10::Storage& MetaTensors::meta_of(const c10::Storage& storage) {
  if (const auto known = by_device_.find(storage.unsafeGetStorageImpl())) {
    return storages_[*known].meta;
  }
  add({storage_over(storage.nbytes(),
                    at::DataPtr(nullptr, at::Device(at::kMeta)),
                    c10::GetAllocator(c10::kMeta)),
       storage,
       /*is_argument=*/true});
  return storages_.back().meta;
}

void MetaTensors::add(Pair pair) {
  by_meta_.add(pair.meta.unsafeGetStorageImpl());
  by_device_.add(pair.device.unsafeGetStorageImpl());
  storages_.push_back(std::move(pair));
}

size_t MetaTensors::largest(c10::ArrayRef<c10::IValue> results) const {
  size_t bytes = 0;
  for (const Argument& each : arguments_) {
    const size_t whole = each.original.storage().nbytes();
    bytes = std::max(bytes, is_filled(each.original) ? each.original.nbytes() : whole);
  }
  for (const Pair& each : storages_) {
    if (each.meta.nbytes() > each.device.nbytes()) bytes = std::max(bytes, each.meta.nbytes());
  }
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      if (by_meta_.find(tensor.storage().unsafeGetStorageImpl())) return;  // an argument's
      bytes = std::max(bytes, tensor.storage().nbytes());
    });
  }
  return bytes;
}

c10::IValue MetaTensors::to_device(const c10::IValue& result,
                                   c10::function_ref<void(const at::Tensor& made)> made) {
  return map_tensors(result, [&](const at::Tensor& tensor) { return to_device(tensor, made); });
}

at::Tensor MetaTensors::to_device(const at::Tensor& tensor,
                                  c10::function_ref<void(const at::Tensor& made)> made) {
  if (!tensor.defined() || !tensor.is_meta()) return tensor;
  if (const auto argument = argument_of_.find(tensor.unsafeGetTensorImpl())) {
    return arguments_[*argument].original;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_strided(tensor), name_, ": its result is not strided. Use spillway emulate.");
  auto* const meta = tensor.storage().unsafeGetStorageImpl();
  if (!by_meta_.find(meta)) {
    auto* const allocator = c10::cuda::CUDACachingAllocator::get();
    const size_t bytes = tensor.storage().nbytes();
    add({tensor.storage(),
         storage_over(bytes, allocator->allocate(bytes), allocator),
         /*is_argument=*/false});
  }
  const Pair& pair = storages_[*by_meta_.find(meta)];
  at::Tensor result = shaped(pair.device, tensor, c10::DispatchKey::CUDA);
  if (!pair.is_argument) made(result);
  return result;
}

void MetaTensors::resize_arguments() {
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  for (const Pair& each : storages_) {
    const size_t bytes = each.meta.nbytes();
    if (bytes <= each.device.nbytes()) continue;
    auto* const own = each.device.unsafeGetStorageImpl();
    own->set_data_ptr_noswap(allocator->allocate(bytes));
    own->set_nbytes(bytes);
  }
  for (const Argument& argument : arguments_) {
    const at::Tensor& now = argument.meta;
    const at::Tensor& before = argument.original;
    if (now.sizes() == before.sizes() && now.strides() == before.strides() &&
        now.storage_offset() == before.storage_offset()) {
      continue;
    }
    before.unsafeGetTensorImpl()->set_sizes_and_strides(
        now.sizes(), now.strides(), now.storage_offset());
  }
}

}  // namespace spillway::operators
