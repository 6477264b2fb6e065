// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/shard.h"
#include "torch_glue/shards/shards.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <spillway/torch/checkpoint.h>
#include <spillway/torch/offload_model.h>
#include <spillway/torch/offloaded_parts.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

using Layer = OffloadModel::Layer;
using Layers = std::vector<Layer>;

std::uint64_t bytes_of(const Layer& layer) {
  std::uint64_t bytes = 0;
  for (const auto* tensors : {&layer.parameters, &layer.buffers}) {
    for (const at::Tensor& tensor : *tensors)
      bytes += tensor.nbytes();
  }
  return bytes;
}

/// One half of a slice runs while the next one is loaded: together they occupy a slice's memory.
std::vector<Layers> parts_of(Layers layers, std::size_t num_slices) {
  TORCH_CHECK_VALUE(!layers.empty(), "Spillway: layers is empty. Pass at least one layer.");
  TORCH_CHECK_VALUE(num_slices >= 1 && num_slices <= layers.size(),
                    "Spillway: num_slices must be from 1 to the number of layers, ",
                    layers.size(),
                    ", not ",
                    num_slices);
  std::vector<std::uint64_t> sizes;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    TORCH_CHECK_VALUE(layers[index].forward,
                      "Spillway: layers[",
                      index,
                      "] has no forward function. Set Layer::forward.");
    sizes.push_back(bytes_of(layers[index]));
  }
  auto begins = split_by_bytes(sizes, std::min(2 * num_slices, layers.size()));
  begins.push_back(layers.size());
  std::vector<Layers> parts;
  for (std::size_t part = 0; part + 1 < begins.size(); ++part) {
    const auto at = [&](std::size_t index) {
      return std::make_move_iterator(layers.begin() + static_cast<std::ptrdiff_t>(index));
    };
    parts.emplace_back(at(begins[part]), at(begins[part + 1]));
  }
  return parts;
}

std::vector<OffloadedParts::Part> tensors_of(const std::vector<Layers>& parts) {
  std::vector<OffloadedParts::Part> all;
  for (const Layers& part : parts) {
    OffloadedParts::Part& tensors = all.emplace_back();
    for (const Layer& layer : part) {
      tensors.parameters.insert(
          tensors.parameters.end(), layer.parameters.begin(), layer.parameters.end());
      tensors.buffers.insert(tensors.buffers.end(), layer.buffers.begin(), layer.buffers.end());
    }
  }
  return all;
}

at::Tensor run_all(const Layers& layers, at::Tensor x) {
  for (const Layer& layer : layers)
    x = layer.forward(x);
  return x;
}

at::Tensor joined(const std::vector<at::Tensor>& results) {
  if (results.size() == 1) return results[0];
  for (const at::Tensor& result : results) {
    TORCH_CHECK_VALUE(
        result.dim() > 0,
        "Spillway: a result is a scalar, and num_microbatches above 1 concatenates results along "
        "dimension 0. Return losses with a dimension, or use num_microbatches=1.");
  }
  return at::cat(results);
}

}  // namespace

struct OffloadModel::State {
  State(std::vector<Layers> all, c10::Device where, const OffloadModelOptions& what)
      : device(where),
        options(what),
        parts(tensors_of(all), where, std::min<std::size_t>(2, all.size()), what.directory) {
    for (Layers& part : all)
      layers.push_back(std::make_shared<const Layers>(std::move(part)));
  }

  [[nodiscard]] std::vector<at::Tensor> split(const at::Tensor& input) const {
    at::Tensor there = input.to(device);
    if (options.num_microbatches == 1) return {std::move(there)};
    TORCH_CHECK_VALUE(there.dim() > 0 && there.size(0) > 0,
                      "Spillway: num_microbatches=",
                      options.num_microbatches,
                      ": an input of shape ",
                      input.sizes(),
                      " has no dimension 0 to split. Use num_microbatches=1.");
    return there.chunk(static_cast<std::int64_t>(options.num_microbatches));
  }

  [[nodiscard]] at::Tensor run(std::size_t part, const at::Tensor& x) const {
    if (!options.checkpoint_activation) return run_all(*layers[part], x);
    CheckpointOptions checkpointed;
    checkpointed.offload_to_cpu = true;
    return checkpoint(
        [held = layers[part]](const std::vector<at::Tensor>& inputs) {
          return run_all(*held, inputs[0]);
        },
        {x},
        checkpointed);
  }

  const c10::Device device;
  const OffloadModelOptions options;
  OffloadedParts parts;
  std::vector<std::shared_ptr<const Layers>> layers;  // of each part; graphs reference them too
};

OffloadModel::OffloadModel(std::vector<Layer> layers,
                           c10::Device device,
                           const OffloadModelOptions& options)
    : state_([&] {
        TORCH_CHECK_VALUE(options.num_microbatches >= 1,
                          "Spillway: num_microbatches must be at least 1, not ",
                          options.num_microbatches);
        return std::make_unique<State>(
            parts_of(std::move(layers), options.num_slices), device, options);
      }()) {}

OffloadModel::~OffloadModel() = default;

at::Tensor OffloadModel::forward(const at::Tensor& input) {
  std::vector<at::Tensor> pieces = state_->split(input);
  state_->parts.begin();
  for (std::size_t part = 0; part < state_->layers.size(); ++part) {
    state_->parts.run(part, [&] {
      for (at::Tensor& piece : pieces)
        piece = state_->run(part, piece);
    });
  }
  if (!at::GradMode::is_enabled()) state_->parts.wait_for_copies();
  return joined(pieces);
}

void OffloadModel::wait_for_copies() {
  state_->parts.wait_for_copies();
}

OffloadedParts::Stats OffloadModel::stats() const {
  return state_->parts.stats();
}

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
