// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/aliasing.h"

#include "emulator/operators/lists.h"

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>

namespace spillway::operators {
namespace {

bool same_shape(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

bool same_parts(const Parts& a, const Parts& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.is_same(other);
  });
}

}  // namespace

void* address(const c10::Storage& storage) {
  // Not mutable_data_ptr(): reading the address must not materialise a copy-on-write storage.
  return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

at::Tensor shaped(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) made._set_conj(true);
  if (like.is_neg()) made._set_neg(true);
  return made;
}

c10::IValue Aliases::to_host(const c10::IValue& value) {
  if (value.isDevice() && value.toDevice().is_cuda()) return at::Device(at::kCPU);
  return map_tensors(value, [this](const at::Tensor& tensor) { return to_host(tensor); });
}

at::Tensor Aliases::to_host(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor alias = tensor;
  Parts parts;
  if (tensor.is_cuda()) {
    alias = alias_of(tensor, parts);
  } else if (tensor.has_storage() && !by_host_.find(tensor.storage().unsafeGetStorageImpl())) {
    add(tensor.storage(), tensor.storage());
  }
  argument_of_.add(alias.unsafeGetTensorImpl());
  arguments_.push_back({tensor, alias, std::move(parts)});
  return alias;
}

at::Tensor Aliases::alias_of(const at::Tensor& tensor, Parts& parts) {
  if (!is_strided(tensor)) {
    for (const at::Tensor& part : parts_of(tensor, name_))
      parts.push_back(to_host(part));
    at::Tensor alias = assemble(tensor, parts);
    parts = parts_of(alias, name_);
    return alias;
  }
  at::Tensor alias = shaped(alias_of(tensor.storage()), tensor, c10::DispatchKey::CPU);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return alias;
}

c10::Storage Aliases::alias_of(const c10::Storage& storage) {
  if (const auto known = by_device_.find(storage.unsafeGetStorageImpl())) {
    return storages_[*known].host;
  }
  c10::Storage alias = shadows_ ? shadows_->of(storage)
                                : c10::Storage(c10::Storage::use_byte_size_t(),
                                               storage.nbytes(),
                                               at::DataPtr(address(storage), at::Device(at::kCPU)),
                                               c10::GetCPUAllocator(),
                                               storage.resizable());
  add(alias, storage);
  return alias;
}

void Aliases::add(c10::Storage host, c10::Storage device) {
  by_host_.add(host.unsafeGetStorageImpl());
  by_device_.add(device.unsafeGetStorageImpl());
  const void* began = address(host);
  storages_.push_back({std::move(host), std::move(device), began});
}

void Aliases::adopt(const c10::IValue& result) {
  for_each_tensor(result, [this](const at::Tensor& tensor) { adopt(tensor); });
}

void Aliases::adopt(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu()) return;
  if (argument_of_.find(tensor.unsafeGetTensorImpl())) return;
  if (!is_strided(tensor)) {
    for (const at::Tensor& part : parts_of(tensor, name_))
      adopt(part);
    return;
  }
  if (by_host_.find(tensor.storage().unsafeGetStorageImpl())) return;
  add(tensor.storage(), {});
  fresh_.push_back({tensor.storage(), {}, {}, {}});
}

void Aliases::adopt_resized() {
  for (const Argument& argument : arguments_) {
    if (argument.original.is_same(argument.alias)) continue;
    if (!is_strided(argument.alias)) {
      for (const at::Tensor& part : parts_of(argument.alias, name_))
        adopt(part);
      continue;
    }
    const c10::Storage& host = argument.alias.storage();
    const c10::Storage& own = argument.original.storage();
    const Pair& before = storages_[*by_host_.find(host.unsafeGetStorageImpl())];
    const bool known = std::any_of(fresh_.begin(), fresh_.end(), [&](const Fresh& fresh) {
      return fresh.host.is_alias_of(host);
    });
    if (address(host) != before.began && !known) fresh_.push_back({host, own, {}, {}});
  }
}

bool Aliases::allocate() {
  for (Fresh& fresh : fresh_) {
    fresh.memory = c10::cuda::CUDACachingAllocator::get()->allocate(fresh.host.nbytes());
  }
  return !fresh_.empty();
}

void Aliases::fill(c10::function_ref<void(const void* at, size_t bytes)> written) {
  for (Fresh& fresh : fresh_) {
    const size_t bytes = fresh.host.nbytes();
    fresh.target = {fresh.memory.get(), bytes};
    if (bytes != 0 && !shadows_) std::memcpy(fresh.target.at, address(fresh.host), bytes);
    if (bytes != 0 && shadows_) shadows_->put(fresh.target.at, fresh.host);
    if (bytes != 0) written(fresh.target.at, bytes);
    if (fresh.resized) {
      auto* own = fresh.resized.unsafeGetStorageImpl();
      own->set_data_ptr_noswap(std::move(fresh.memory));
      own->set_nbytes(bytes);
    } else {
      storages_[*by_host_.find(fresh.host.unsafeGetStorageImpl())].device =
          c10::Storage(c10::Storage::use_byte_size_t(),
                       bytes,
                       std::move(fresh.memory),
                       c10::cuda::CUDACachingAllocator::get(),
                       /*resizable=*/true);
    }
  }
  for (const Argument& argument : arguments_)
    write_back(argument);
}

void Aliases::write_back(const Argument& argument) const {
  const auto& [original, alias, given] = argument;
  if (original.is_same(alias) || alias.is_nested()) return;
  if (!is_strided(alias)) {
    const Parts now = parts_of(alias, name_);
    const bool same = same_parts(now, given) && original.sizes() == alias.sizes() &&
                      (!alias.is_sparse() || original.is_coalesced() == alias.is_coalesced());
    if (!same) reassemble(original, alias, to_device(now));
  } else if (!same_shape(original, alias)) {
    original.unsafeGetTensorImpl()->set_sizes_and_strides(
        alias.sizes(), alias.strides(), alias.storage_offset());
  }
}

std::vector<ResultMemory> Aliases::result_memory() const {
  std::vector<ResultMemory> all;
  for (const Fresh& fresh : fresh_) {
    if (!fresh.resized) all.push_back(fresh.target);
  }
  return all;
}

void Aliases::fill_again(c10::ArrayRef<ResultMemory> targets) const {
  TORCH_CHECK(targets.size() == fresh_.size(),
              name_,
              " returned ",
              fresh_.size(),
              " tensors in a replay, and ",
              targets.size(),
              " when it was captured. Run it outside of the capture.");
  for (size_t i = 0; i < targets.size(); ++i) {
    TORCH_CHECK(targets[i].bytes == fresh_[i].host.nbytes(),
                name_,
                " returned ",
                fresh_[i].host.nbytes(),
                " bytes in a replay, and ",
                targets[i].bytes,
                " when it was captured. Run it outside of the capture.");
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].bytes != 0) {
      std::memcpy(targets[i].at, address(fresh_[i].host), targets[i].bytes);
    }
  }
}

c10::IValue Aliases::to_device(const c10::IValue& result) const {
  return map_tensors(result, [this](const at::Tensor& tensor) { return to_device(tensor); });
}

at::Tensor Aliases::to_device(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
  if (const auto argument = argument_of_.find(tensor.unsafeGetTensorImpl())) {
    return arguments_[*argument].original;
  }
  if (!is_strided(tensor)) return assemble(tensor, to_device(parts_of(tensor, name_)));
  const c10::Storage& storage =
      storages_[*by_host_.find(tensor.storage().unsafeGetStorageImpl())].device;
  const auto key = storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return shaped(storage, tensor, key);
}

Parts Aliases::to_device(const Parts& parts) const {
  Parts made;
  for (const at::Tensor& part : parts)
    made.push_back(to_device(part));
  return made;
}

}  // namespace spillway::operators
