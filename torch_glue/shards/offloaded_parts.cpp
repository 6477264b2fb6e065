// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/shards.h"

#include <spillway/torch/offloaded_parts.h>

namespace spillway {
namespace {

std::shared_ptr<OffloadedShards> create(const std::vector<OffloadedParts::Part>& parts,
                                        c10::Device device,
                                        std::size_t slots,
                                        const std::string& directory) {
  TORCH_CHECK_VALUE(!parts.empty(), "Spillway: parts is empty. Pass at least one part.");
  TORCH_CHECK_VALUE(slots >= 1, "Spillway: slots must be at least 1, not ", slots);
  TORCH_CHECK_VALUE(
      device.is_cuda() && device.has_index(), "Spillway: device must be cuda:<n>, not ", device);
  std::vector<std::vector<Shard::Member>> members;
  for (const auto& part : parts) {
    auto& list = members.emplace_back();
    for (const at::Tensor& parameter : part.parameters)
      list.push_back({parameter, false});
    for (const at::Tensor& buffer : part.buffers)
      list.push_back({buffer, true});
  }
  return OffloadedShards::create(members, device, slots, directory);
}

}  // namespace

OffloadedParts::OffloadedParts(const std::vector<Part>& parts,
                               c10::Device device,
                               std::size_t slots,
                               const std::string& directory)
    : shards_(create(parts, device, slots, directory)) {}

OffloadedParts::~OffloadedParts() = default;

void OffloadedParts::begin() {
  shards_->begin();
}

void OffloadedParts::run(std::size_t part, const std::function<void()>& function) {
  shards_->run(part, function);
}

void OffloadedParts::wait_for_copies() {
  shards_->wait_for_copies();
}

OffloadedParts::Stats OffloadedParts::stats() const {
  const auto now = shards_->stats();
  return {now.loaded.count(), now.gradients.count(), now.slots.count(), now.extra_slots};
}

}  // namespace spillway
