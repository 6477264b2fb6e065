// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/shard.h"

#include "allocator/base/check.h"
#include "torch_glue/base/check.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

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
  return std::make_shared<HostMemory>(traffic_->file()->take(size), traffic_->file());
}

std::unique_ptr<Shard> Shard::make(const std::vector<Member>& members,
                                   const std::vector<std::unique_ptr<Shard>>& earlier,
                                   DeviceRuntime& device,
                                   std::shared_ptr<FileTraffic> traffic) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<Shard> shard(new Shard(device, std::move(traffic)));
  std::vector<Entry> tied;
  for (const Member& member : members) {
    TORCH_CHECK_VALUE(member.tensor.is_non_overlapping_and_dense(),
                      "Spillway: a parameter or buffer of shape ",
                      member.tensor.sizes(),
                      " has gaps or overlaps. Make it contiguous first.");
    const Bytes size{member.tensor.nbytes()};
    const Entry* known = nullptr;
    for (const auto& other : earlier) {
      if (known == nullptr) known = other->find(member.tensor);
    }
    if (known != nullptr) {
      tied.push_back(*known);
      continue;
    }
    if (shard->find(member.tensor) != nullptr) continue;
    shard->entries_.push_back(
        {member.tensor, {}, nullptr, shard->size_, shard->size_, size, member.buffer, {}, {}, {}});
    shard->size_ += aligned(size);
  }
  shard->own_size_ = shard->size_;
  if (shard->own_size_ > Bytes{}) shard->own_ = shard->host_memory(shard->own_size_);
  for (Entry& entry : shard->entries_) {
    entry.memory = shard->own_;
    const at::Tensor values = entry.tensor.detach();
    entry.home = shard->own_ ? shard->own_->tensor(values, entry.host_offset) : values.cpu();
    entry.home.copy_(values);
    std::shared_ptr<GradientRange> in_file;
    if (shard->traffic_ && entry.tensor.requires_grad() && !entry.size.zero()) {
      in_file = std::make_shared<GradientRange>(shard->traffic_->file(), aligned(entry.size));
    }
    entry.gradients = std::make_shared<GradientWay>(std::move(in_file));
  }
  for (Entry& entry : tied) {
    entry.offset = shard->size_;
    shard->size_ += aligned(entry.size);
    shard->entries_.push_back(entry);
  }
  return shard;
}

const Shard::Entry* Shard::find(const at::Tensor& member) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.tensor.is_same(member);
  });
  return found == entries_.end() ? nullptr : &*found;
}

bool Shard::is_parameter(Bytes offset) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return !entry.buffer && offset >= entry.offset && offset < entry.offset + entry.size;
  });
}

Shard::Loading Shard::load_by_traffic(driver::DevicePtr at,
                                      driver::Stream consumer,
                                      CopyPriority priority) {
  std::vector<FileTraffic::Piece> pieces;
  if (own_) pieces.push_back({own_->data(), own_size_, at});
  for (const Entry& entry : entries_) {
    if (entry.memory == own_ || entry.size.zero()) continue;
    pieces.push_back({entry.memory->data() + entry.host_offset.count(),
                      entry.size,
                      driver::DevicePtr(at.address() + entry.offset.count())});
  }
  return {{}, traffic_->load(std::move(pieces), consumer, priority)};
}

Shard::Loading Shard::load(driver::DevicePtr at, driver::Stream consumer, CopyPriority priority) {
  if (size_ == Bytes{}) return {};
  if (traffic_) return load_by_traffic(at, consumer, priority);

  std::vector<CopyIn> copies;
  if (own_) copies.push_back(own_->read(Bytes{}, own_size_, at));
  for (const Entry& entry : entries_) {
    if (entry.memory == own_ || entry.size == Bytes{}) continue;
    copies.push_back(entry.memory->read(entry.host_offset, entry.size, at + entry.offset));
  }
  const driver::Fence loaded = checked(device_.copies().to_device(copies, consumer, priority));
  for (const Entry& entry : entries_) {
    if (entry.memory) entry.memory->note_copy(loaded);
  }
  return {loaded, {}};
}

void Shard::put_on(const c10::Storage& storage, HostGradients& gradients) {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const auto options = entry.tensor.options().device(storage.device());
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::Storage(storage),
        c10::DispatchKeySet(c10::DispatchKey::CUDA) |
            c10::DispatchKeySet(c10::DispatchKey::AutogradCUDA) |
            c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView),
        options.dtype());
    const auto item = static_cast<std::int64_t>(options.dtype().itemsize());
    impl->set_sizes_and_strides(entry.home.sizes(),
                                entry.home.strides(),
                                static_cast<std::int64_t>(entry.offset.count()) / item);
    if (entry.tensor.requires_grad()) {
      entry.accumulator = torch::autograd::impl::grad_accumulator(entry.tensor);
    }
    entry.tensor.set_data(at::Tensor(std::move(impl)));
    if (!entry.tensor.requires_grad()) continue;
    entry.gradient = entry.gradients->begin(gradients, entry.accumulator, entry.tensor);
    torch::autograd::impl::set_grad_accumulator(entry.tensor, compat::WeakNodePtr(entry.gradient));
  }
}

void Shard::put_back() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    entry.tensor.set_data(entry.home);
    if (entry.gradient == nullptr) continue;
    entry.gradients->end(entry.gradient);
    entry.gradient.reset();
    torch::autograd::impl::set_grad_accumulator(entry.tensor,
                                                compat::WeakNodePtr(entry.accumulator));
  }
}

void Shard::keep_buffers(const c10::Storage& storage, driver::Stream producer) {
  for (Entry& entry : entries_) {
    if (!entry.buffer || entry.size == Bytes{}) continue;
    const driver::DevicePtr source(static_cast<std::byte*>(storage.mutable_data()) +
                                   entry.offset.count());
    driver::Fence kept;
    if (traffic_) {
      traffic_->keep(source, producer, entry.memory, entry.host_offset, entry.size, kept);
    } else {
      kept = entry.memory->write(device_.copies(), source, entry.host_offset, entry.size, producer);
    }
    check(driver::Timeline::wait(producer, kept));
  }
}

void Shard::wait_for_copies() {
  if (own_ && !traffic_) own_->wait_for_copies();
}

namespace {

/// Likewise with no piece above `limit`; empty if that needs more pieces.
std::vector<std::size_t> pieces_up_to(std::uint64_t limit,
                                      const std::vector<std::uint64_t>& sizes,
                                      std::size_t parts) {
  std::vector<std::size_t> begins{0};
  std::uint64_t total = 0;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    if (sizes[index] > limit) return {};
    // At least as many elements as pieces must be left, so that no piece is empty.
    const bool needed = sizes.size() - index + begins.size() <= parts;
    if (index > begins.back() && (total + sizes[index] > limit || needed)) {
      begins.push_back(index);
      total = 0;
    }
    total += sizes[index];
  }
  return begins.size() == parts ? begins : std::vector<std::size_t>{};
}

}  // namespace

std::vector<std::size_t> split_by_bytes(const std::vector<std::uint64_t>& sizes,
                                        std::size_t parts) {
  SPILLWAY_CHECK(parts >= 1 && parts <= sizes.size());
  std::uint64_t low = *std::max_element(sizes.begin(), sizes.end());
  std::uint64_t high = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (pieces_up_to(middle, sizes, parts).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return pieces_up_to(low, sizes, parts);
}

}  // namespace spillway
