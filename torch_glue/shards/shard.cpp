// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/shard.h"

#include "torch_glue/base/check.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace spillway {
namespace {

constexpr Bytes kAlignment{256};  // alignment for operators: half of that of PyTorch's allocators

Bytes aligned(Bytes size) {
  const std::uint64_t step = kAlignment.count();
  return Bytes{(size.count() + step - 1) / step * step};
}

}  // namespace

Bytes Shard::size_on_device(const Member& member) {
  return aligned(Bytes{member.tensor.nbytes()});
}

Bytes Shard::size_in_file(const Member& member) {
  const Bytes size = size_on_device(member);
  return member.tensor.requires_grad() ? size + size : size;
}

std::shared_ptr<HostMemory> Shard::host_memory(Bytes size) const {
  if (!traffic_) return HostMemory::of(device_, size);
  return std::make_shared<HostMemory>(traffic_->file()->take(size), size, traffic_->file());
}

std::unique_ptr<Shard> Shard::make(const std::vector<Member>& members,
                                   const std::vector<std::unique_ptr<Shard>>& earlier,
                                   DeviceRuntime& device,
                                   std::shared_ptr<FileTraffic> traffic) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<Shard> shard(new Shard(device, std::move(traffic)));
  std::vector<Place> tied;
  for (const Member& member : members) {
    TORCH_CHECK_VALUE(member.tensor.is_non_overlapping_and_dense(),
                      "Spillway: a parameter or buffer of shape ",
                      member.tensor.sizes(),
                      " has gaps or overlaps. Make it contiguous first.");
    const Bytes size{member.tensor.nbytes()};
    const Place* known = nullptr;
    for (const auto& other : earlier) {
      if (known == nullptr) known = other->find(member.tensor);
    }
    if (known != nullptr) {
      tied.push_back(*known);
      continue;
    }
    if (shard->find(member.tensor) != nullptr) continue;
    shard->places_.push_back(
        {member.tensor, {}, nullptr, shard->size_, shard->size_, size, member.buffer, {}, {}, {}});
    shard->size_ += aligned(size);
  }
  shard->own_size_ = shard->size_;
  if (shard->own_size_ > Bytes{}) shard->own_ = shard->host_memory(shard->own_size_);
  for (Place& place : shard->places_) {
    place.memory = shard->own_;
    const at::Tensor values = place.tensor.detach();
    place.home = shard->own_ ? shard->own_->tensor(values, place.host_offset) : values.cpu();
    place.home.copy_(values);
    std::shared_ptr<GradientPlace> in_file;
    if (shard->traffic_ && place.tensor.requires_grad() && !place.size.zero()) {
      in_file = std::make_shared<GradientPlace>(shard->traffic_->file(), aligned(place.size));
    }
    place.gradients = std::make_shared<GradientWay>(std::move(in_file));
  }
  for (Place& place : tied) {
    place.offset = shard->size_;
    shard->size_ += aligned(place.size);
    shard->places_.push_back(place);
  }
  return shard;
}

const Shard::Place* Shard::find(const at::Tensor& member) const {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.tensor.is_same(member);
  });
  return found == places_.end() ? nullptr : &*found;
}

bool Shard::is_parameter(Bytes offset) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return !place.buffer && offset >= place.offset && offset < place.offset + place.size;
  });
}

Shard::Loading Shard::load_by_traffic(driver::DevicePtr at,
                                      driver::Stream consumer,
                                      CopyPriority priority) {
  std::vector<FileTraffic::Piece> pieces;
  if (own_) pieces.push_back({own_->data(), own_size_, at});
  for (const Place& place : places_) {
    if (place.memory == own_ || place.size.zero()) continue;
    pieces.push_back({place.memory->data() + place.host_offset.count(),
                      place.size,
                      driver::DevicePtr(at.address() + place.offset.count())});
  }
  return {{}, traffic_->load(std::move(pieces), consumer, priority)};
}

Shard::Loading Shard::load(driver::DevicePtr at, driver::Stream consumer, CopyPriority priority) {
  if (size_ == Bytes{}) return {};
  if (traffic_) return load_by_traffic(at, consumer, priority);

  struct Part {
    HostSlot home;
    driver::Fence written;
    Bytes offset;
  };

  std::vector<Part> parts;
  if (own_) parts.push_back({own_->part(Bytes{}, own_size_), own_->written(), Bytes{}});
  for (const Place& place : places_) {
    if (place.memory == own_ || place.size == Bytes{}) continue;
    parts.push_back(
        {place.memory->part(place.host_offset, place.size), place.memory->written(), place.offset});
  }
  std::vector<CopyIn> copies;
  copies.reserve(parts.size());
  for (const Part& part : parts) {
    copies.push_back(
        {&part.home, part.written, driver::DevicePtr(at.address() + part.offset.count())});
  }
  const driver::Fence loaded = checked(device_.copies().to_device(copies, consumer, priority));
  for (const Place& place : places_) {
    if (place.memory) place.memory->note_copy(loaded);
  }
  return {loaded, {}};
}

void Shard::put_on(const c10::Storage& storage, HostGradients& gradients) {
  const at::NoGradGuard no_grad;
  for (Place& place : places_) {
    const auto options = place.tensor.options().device(storage.device());
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::Storage(storage),
        c10::DispatchKeySet(c10::DispatchKey::CUDA) |
            c10::DispatchKeySet(c10::DispatchKey::AutogradCUDA) |
            c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView),
        options.dtype());
    const auto item = static_cast<std::int64_t>(options.dtype().itemsize());
    impl->set_sizes_and_strides(place.home.sizes(),
                                place.home.strides(),
                                static_cast<std::int64_t>(place.offset.count()) / item);
    if (place.tensor.requires_grad()) {
      place.accumulator = torch::autograd::impl::grad_accumulator(place.tensor);
    }
    place.tensor.set_data(at::Tensor(std::move(impl)));
    if (!place.tensor.requires_grad()) continue;
    place.gradient = place.gradients->begin(gradients, place.accumulator, place.tensor);
    torch::autograd::impl::set_grad_accumulator(place.tensor, compat::WeakNodePtr(place.gradient));
  }
}

void Shard::put_back() {
  const at::NoGradGuard no_grad;
  for (Place& place : places_) {
    place.tensor.set_data(place.home);
    if (place.gradient == nullptr) continue;
    place.gradients->end(place.gradient);
    place.gradient.reset();
    torch::autograd::impl::set_grad_accumulator(place.tensor,
                                                compat::WeakNodePtr(place.accumulator));
  }
}

void Shard::keep_buffers(const c10::Storage& storage, driver::Stream producer) {
  for (Place& place : places_) {
    if (!place.buffer || place.size == Bytes{}) continue;
    const driver::DevicePtr source(static_cast<std::byte*>(storage.mutable_data()) +
                                   place.offset.count());
    driver::Fence kept;
    if (traffic_) {
      traffic_->keep(source, producer, place.memory, place.host_offset, place.size, kept);
    } else {
      HostSlot home = place.memory->part_to_write(place.host_offset, place.size);
      kept = checked(device_.copies().to_host(source, home, producer));
      place.memory->note_written(kept);
    }
    check(driver::Timeline::wait(producer, kept));
  }
}

void Shard::wait_for_copies() {
  if (own_ && !traffic_) own_->wait_for_copies();
}

}  // namespace spillway
