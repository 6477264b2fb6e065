// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/list_slices.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/running_operator.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// A larger slice does not make kernels faster.
constexpr Bytes kMostSlice{1ULL << 30U};
constexpr Bytes kLeastSlice{1ULL << 20U};
std::atomic<std::uint64_t> fixed_slice{0};
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
      if (device != nullptr) slice_ = slice_bytes(device->budget().of_job());
      break;
    }
  }

  [[nodiscard]] std::size_t length() const { return length_; }

  /// Whether its slices compute what the whole call does. PyTorch refuses lists of different
  /// lengths. It computes the lists at once only if each of their tensors is dense and of one type,
  /// and at each place they have the same layout; else one tensor after the other, which may round
  /// differently. A slice must not decide otherwise than the whole.
  [[nodiscard]] bool may_be_sliced() const {
    const std::vector<at::Tensor>* first = nullptr;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const c10::IValue& argument = arguments_[i];
      if (!argument.isList()) continue;
      const std::size_t size =
          argument.isTensorList() ? tensors_[i].size() : argument.toListRef().size();
      if (size == 0) continue;
      if (size != length_) return false;
      if (!argument.isTensorList()) continue;
      if (first == nullptr) first = &tensors_[i];
      if (!is_uniform(tensors_[i], *first)) return false;
    }
    return true;
  }

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
  static bool is_uniform(const std::vector<at::Tensor>& list,
                         const std::vector<at::Tensor>& first) {
    // Optimizers have a step of each parameter as a tensor with one element.
    const bool counts = std::all_of(list.begin(), list.end(), [](const at::Tensor& each) {
      return each.defined() && each.numel() == 1;
    });
    for (std::size_t k = 0; k < list.size(); ++k) {
      const at::Tensor& each = list[k];
      if (!each.defined() || each.layout() != at::kStrided) return false;
      if (each.dtype() != list[0].dtype() || each.device() != list[0].device()) return false;
      if (!each.is_non_overlapping_and_dense()) return false;
      if (counts) continue;
      if (each.sizes() != first[k].sizes() || each.strides() != first[k].strides()) return false;
    }
    return true;
  }

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

void set_slice_bytes(Bytes size) {
  fixed_slice = size.count();
}

Bytes slice_bytes(Bytes budget) {
  if (const Bytes fixed{fixed_slice}; !fixed.zero()) return fixed;
  if (budget.zero()) return kMostSlice;
  return std::clamp(Bytes{budget.count() / kSlicesPerBudget}, kLeastSlice, kMostSlice);
}

bool run_in_slices(const GuardedOperator& known,
                   const c10::OperatorHandle& op,
                   c10::DispatchKeySet keys,
                   c10::Stack* stack) {
  SlicedCall call(known, *stack);
  if (call.end_of(0) == call.length() || !call.may_be_sliced()) return false;
  torch::jit::drop(*stack, known.arguments());
  std::vector<std::vector<at::Tensor>> results(op.schema().returns().size());
  for (std::size_t begin = 0, end = 0; begin < call.length(); begin = end) {
    end = call.end_of(begin);
    const RunningOperator running(op, *stack, stack->size());
    PinnedStorages pinned;
    call.push_slice(begin, end, *stack, pinned);
    pinned.copy_ahead();
    run_below_guard(known, op, keys, stack);
    for (std::size_t i = results.size(); i-- > 0;) {
      for (const at::Tensor& result : torch::jit::pop(*stack).toTensorVector())
        results[i].push_back(result);
    }
  }
  for (auto& result : results)
    stack->emplace_back(std::move(result));
  return true;
}

}  // namespace spillway
