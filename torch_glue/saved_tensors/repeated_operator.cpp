// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/repeated_operator.h"

#include "allocator/base/env.h"
#include "torch_glue/base/streams.h"

#include <ATen/Context.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

enum Form : char { kPlain, kTensor, kList, kOptionalList };

Form form_of(const c10::IValue& value) {
  if (value.isTensor()) return kTensor;
  if (value.isTensorList()) return kList;
  return value.isOptionalTensorList() ? kOptionalList : kPlain;
}

const c10::IValue* argument(const c10::OperatorHandle& op,
                            c10::ArrayRef<c10::IValue> arguments,
                            const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  return index ? &arguments[static_cast<std::size_t>(*index)] : nullptr;
}

bool draws(const c10::OperatorHandle& op,
           const RepeatedKind& kind,
           c10::ArrayRef<c10::IValue> arguments) {
  if (!kind.is(RepeatedKind::kDraws)) return false;
  const c10::IValue* const share = argument(op, arguments, "dropout_p");
  return share == nullptr || !share->isDouble() || share->toDouble() > 0;
}

/// NVIDIA's condition for recurrent layers with the same bits each time: a single size in cuBLAS's
/// setting, as in ":4096:8".
bool cublas_has_one_workspace() {
  static const bool has = [] {
    const auto setting = env::foreign("CUBLAS_WORKSPACE_CONFIG");
    return setting && std::count(setting->begin(), setting->end(), ':') == 2;
  }();
  return has;
}

/// Whether the layer drops out elements by a state of cuDNN's, which the call changes.
bool drops_out(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  return argument(op, arguments, "dropout")->toDouble() > 0 &&
         argument(op, arguments, "train")->toBool();
}

}  // namespace

bool RepeatedOperator::possible(const c10::OperatorHandle& op,
                                const RepeatedKind& kind,
                                c10::ArrayRef<c10::IValue> arguments) {
  if (kind.is(RepeatedKind::kBenchmarks)) {
    const c10::IValue* const own = argument(op, arguments, "benchmark");
    if (own != nullptr ? own->toBool() : at::globalContext().benchmarkCuDNN()) return false;
  }
  if (kind.is(RepeatedKind::kRecurrent) &&
      (!cublas_has_one_workspace() || drops_out(op, arguments))) {
    return false;
  }
  if (kind.is(RepeatedKind::kScans) && arguments[0].toTensor().dim() < 2) return false;
  return !draws(op, kind, arguments) || !capturing();
}

RepeatedOperator::RepeatedOperator(const c10::OperatorHandle& op,
                                   const RepeatedKind& kind,
                                   c10::ArrayRef<c10::IValue> arguments)
    : RepeatedCall(kind), op_(op) {
  arguments_.reserve(arguments.size());
  for (const c10::IValue& value : arguments) {
    const Form form = form_of(value);
    forms_.push_back(form);
    if (form == kPlain) {
      arguments_.push_back(value);
    } else {
      arguments_.emplace_back(
          static_cast<std::int64_t>(form == kTensor ? 1 : value.toListRef().size()));
    }
  }
  if (draws(op, kind, arguments)) {
    random_ = RandomStart::of(arguments[0].toTensor().device().index());
  }
}

std::optional<std::uint32_t> RepeatedOperator::number_of(const at::Tensor& saved) const {
  if (saved.grad_fn() != nullptr) return static_cast<std::uint32_t>(saved.output_nr());
  const at::ScalarType type = saved.scalar_type();
  if (kind().is(RepeatedKind::kIndex) && type == at::kLong) return 1;
  if (kind().is(RepeatedKind::kRecurrent) && type == at::kByte) return 3;
  if (!kind().is(RepeatedKind::kWorkspace)) return std::nullopt;
  return static_cast<std::uint32_t>(op_.schema().returns().size() - 1);
}

std::vector<c10::IValue> RepeatedOperator::arguments_of(const c10::OperatorHandle& op,
                                                        const RepeatedKind& kind,
                                                        c10::ArrayRef<c10::IValue> arguments) {
  std::vector<c10::IValue> given = arguments.vec();
  if (!kind.is(RepeatedKind::kRecurrent)) return given;
  // A tensor over the memory of the weights, which no node saves. Without it, cuDNN copies them.
  const auto weight_buf = op.schema().argumentIndexWithName("weight_buf");
  given[static_cast<std::size_t>(*weight_buf)] = c10::IValue();
  return given;
}

at::Tensor RepeatedOperator::repeat(at::ArrayRef<at::Tensor> tensors, std::uint32_t output) const {
  torch::jit::Stack stack;
  const at::Tensor* next = tensors.begin();
  for (std::size_t index = 0; index < arguments_.size(); ++index) {
    const char form = forms_[index];
    if (form == kPlain) {
      stack.push_back(arguments_[index]);
    } else if (form == kTensor) {
      stack.emplace_back(*next++);
    } else if (form == kList) {
      c10::List<at::Tensor> list;
      for (std::int64_t left = arguments_[index].toInt(); left > 0; --left)
        list.push_back(*next++);
      stack.emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (std::int64_t left = arguments_[index].toInt(); left > 0; --left, ++next)
        list.push_back(next->defined() ? std::optional(*next) : std::nullopt);
      stack.emplace_back(std::move(list));
    }
  }
  std::optional<DrawAgain> generator;
  if (random_) generator.emplace(*random_);
  op_.callBoxed(stack);
  if (stack.size() == 1 && stack[0].isTensorList()) return stack[0].toTensorVector().at(output);
  return stack.at(output).toTensor();
}

}  // namespace spillway
