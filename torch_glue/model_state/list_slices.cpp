// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/list_slices.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/managed_storages.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// A larger slice does not make kernels faster.
constexpr Bytes kMostSlice{256ULL << 20U};
constexpr Bytes kLeastSlice{1ULL << 20U};
/// Small models have several of these.
constexpr Bytes kChaoticSlice{32ULL << 10U};
/// A slice has room for its temporaries too, and its parts come and go one after the other.
constexpr std::uint64_t kSlicesPerBudget = 8;

/// The arguments of a call. Those that are lists of its length are sliced.
class SlicedCall {
 public:
  SlicedCall(const GuardedOperator& known, c10::Stack& stack)
      : known_(known),
        arguments_(stack.end() - static_cast<std::ptrdiff_t>(known.arguments()), stack.end()) {
    for (const c10::IValue& argument : arguments_) {
      tensors_.push_back(argument.isTensorList() ? argument.toTensorVector()
                                                 : std::vector<at::Tensor>());
      length_ = std::max(length_, tensors_.back().size());
    }
    for (const auto& list : tensors_) {
      if (list.empty() || !list.front().defined() || !list.front().is_cuda()) continue;
      const DeviceRuntime* const device =
          Runtime::instance().devices().if_made(DeviceId{list.front().device().index()});
      if (device != nullptr) slice_ = slice_bytes(device->held_budget());
      break;
    }
  }

  [[nodiscard]] std::size_t length() const { return length_; }

  /// The end of the slice that begins at `begin`.
  [[nodiscard]] std::size_t end_of(std::size_t begin) const {
    Bytes bytes;
    std::size_t end = begin;
    while (end < length_ && (end == begin || bytes < slice_)) {
      for (const auto& list : tensors_)
        if (list.size() == length_ && list[end].defined()) bytes += Bytes{list[end].nbytes()};
      ++end;
    }
    return end;
  }

  void push_slice(std::size_t begin, std::size_t end, c10::Stack& stack, PinnedStorages& pinned) {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      stack.push_back(slice_of(i, begin, end));
      pinned.add(stack.back(), known_.writes(i));
    }
  }

 private:
  [[nodiscard]] c10::IValue slice_of(std::size_t argument,
                                     std::size_t begin,
                                     std::size_t end) const {
    const auto at = [](std::size_t place) {
      return static_cast<std::ptrdiff_t>(place);
    };
    const auto& tensors = tensors_[argument];
    if (tensors.size() == length_)
      return std::vector<at::Tensor>(tensors.begin() + at(begin), tensors.begin() + at(end));
    const c10::IValue& whole = arguments_[argument];
    if (!whole.isList() || whole.isTensorList() || whole.toListRef().size() != length_)
      return whole;
    const auto all = whole.toList();
    c10::impl::GenericList part(all.elementType());
    for (std::size_t k = begin; k < end; ++k)
      part.push_back(all.get(k));
    return part;
  }

  const GuardedOperator& known_;
  std::vector<c10::IValue> arguments_;
  std::vector<std::vector<at::Tensor>> tensors_;  // of the arguments that are lists of tensors
  std::size_t length_ = 0;
  Bytes slice_ = kMostSlice;
};

}  // namespace

Bytes slice_bytes(Bytes budget) {
  if (ManagedStorages::instance().chaotic()) return kChaoticSlice;
  if (budget.zero()) return kMostSlice;
  return std::clamp(Bytes{budget.count() / kSlicesPerBudget}, kLeastSlice, kMostSlice);
}

bool run_in_slices(const GuardedOperator& known,
                   const c10::OperatorHandle& op,
                   c10::DispatchKeySet keys,
                   c10::Stack* stack) {
  SlicedCall call(known, *stack);
  if (call.end_of(0) == call.length()) return false;
  torch::jit::drop(*stack, known.arguments());
  const bool returns = !op.schema().returns().empty();
  std::vector<at::Tensor> results;
  for (std::size_t begin = 0, end = 0; begin < call.length(); begin = end) {
    end = call.end_of(begin);
    PinnedStorages pinned;
    call.push_slice(begin, end, *stack, pinned);
    run_below_guard(op, keys, stack);
    if (!returns) continue;
    for (const at::Tensor& result : torch::jit::pop(*stack).toTensorVector())
      results.push_back(result);
  }
  if (returns) stack->emplace_back(std::move(results));
  return true;
}

}  // namespace spillway
