// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/scratch.h"

#include "emulator/operators/ledger.h"
#include "emulator/operators/shapes/cudnn_recurrent.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <vector>

namespace spillway::operators {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

constexpr size_t kFloat = sizeof(float);

size_t element_size(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.element_size());
}

size_t length_of(const at::Tensor& tensor, int64_t dimension) {
  return static_cast<size_t>(tensor.size(dimension));
}

size_t rounded_up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}

/// How often a deterministic kernel keeps the gradient of the query: once for each of the blocks
/// that would otherwise add to the same one.
size_t splits(size_t batch_and_heads) {
  if (!at::globalContext().deterministicAlgorithms()) return 1;
  const auto multiprocessors =
      static_cast<size_t>(at::cuda::getCurrentDeviceProperties()->multiProcessorCount);
  return (multiprocessors + batch_and_heads - 1) / batch_and_heads;
}

/// Arguments: gradient, query, key, value (batch, heads, length, width).
Scratch flash_backward(Values arguments) {
  const at::Tensor& query = arguments[1].toTensor();
  const at::Tensor& key = arguments[2].toTensor();
  const size_t batch_and_heads = length_of(query, 0) * length_of(query, 1);
  const size_t length = rounded_up(length_of(query, 2), 128);
  const size_t width = length_of(query, 3) <= 192 ? rounded_up(length_of(query, 3), 32) : 256;
  const size_t rows = batch_and_heads * length * kFloat;
  Scratch scratch{rows, rows * width * splits(batch_and_heads)};
  if (length_of(query, 1) != length_of(key, 1)) {  // keys and values of every head of the queries
    const size_t expanded =
        batch_and_heads * length_of(key, 2) * length_of(key, 3) * element_size(key);
    scratch.append({expanded, expanded});
  }
  return scratch;
}

Scratch cudnn_backward(Values arguments) {
  const at::Tensor& query = arguments[1].toTensor();
  const size_t rows = length_of(query, 0) * length_of(query, 1) * length_of(query, 2) * kFloat;
  return {rows, rows * length_of(query, 3)};
}

Scratch efficient_backward(Values arguments) {
  const at::Tensor& query = arguments[1].toTensor();
  const size_t batch_and_heads = length_of(query, 0) * length_of(query, 1);
  Scratch scratch{batch_and_heads * length_of(query, 2) * kFloat};
  if (element_size(query) < kFloat) {  // otherwise the gradient itself is summed in
    scratch.push_back(batch_and_heads * rounded_up(length_of(query, 2), 64) *
                      rounded_up(length_of(query, 3), 64) * kFloat);
  }
  return scratch;
}

/// Arguments: gradient, indices, number of weights, padding, whether gradients are scaled.
Scratch embedding_backward(Values arguments) {
  constexpr size_t kDirectly = 3072;     // indices that need no sorting
  constexpr size_t kRowsOfAThread = 10;  // of one row of the weight
  const at::Tensor& gradient = arguments[0].toTensor();
  const auto indices = static_cast<size_t>(arguments[1].toTensor().numel());
  if (indices <= kDirectly && !arguments[4].toBool()) return {};
  const size_t sorted = indices * element_size(arguments[1].toTensor());
  const size_t rows =
      indices / kRowsOfAThread + std::min(indices, static_cast<size_t>(arguments[2].toInt()));
  const size_t partial = rows * length_of(gradient, -1) * std::max(element_size(gradient), kFloat);
  return {sorted, sorted, partial};
}

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.suggest_memory_format() != at::MemoryFormat::Contiguous;
}

/// Of two or three images and a filter: those that a kernel reads or writes in another order.
template <size_t... kAt>
Scratch in_channels_last(Values arguments) {
  size_t bytes = 0;
  for (const size_t at : {kAt...}) {
    const at::Tensor& tensor = arguments[at].toTensor();
    if (tensor.dim() == 4 && !is_channels_last(tensor)) bytes += tensor.nbytes();
  }
  return {bytes};
}

struct NamedScratch {
  std::string_view name;
  ScratchRule rule;
};

constexpr NamedScratch kScratchRules[] = {
    {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
    {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
    {"aten::embedding_dense_backward", embedding_backward},
    {"aten::_cudnn_rnn", cudnn_recurrent_scratch},
    {"aten::_cudnn_rnn_backward", cudnn_recurrent_backward_scratch},
    {"aten::convolution", in_channels_last<0, 1>},
    {"aten::convolution_backward", in_channels_last<0, 1, 2>},
};

}  // namespace

ScratchRule scratch_rule(std::string_view name) {
  const auto* const found = std::find_if(
      std::begin(kScratchRules), std::end(kScratchRules), [&](const NamedScratch& each) {
        return each.name == name;
      });
  return found == std::end(kScratchRules) ? nullptr : found->rule;
}

void take_scratch(const Scratch& scratch) {
  const AllocatesFor role(SPILLWAY_ROLE_WORKSPACE);
  std::vector<at::DataPtr> found;
  for (const size_t bytes : scratch)
    found.push_back(c10::cuda::CUDACachingAllocator::get()->allocate(bytes));
}

}  // namespace spillway::operators
