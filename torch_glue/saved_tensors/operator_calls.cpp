// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operator_calls.h"

#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/thread_notes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using Call = std::shared_ptr<const OperatorCall>;

/// Results are usually saved by one of the next operators. Those of a long skip connection, such as
/// a U-Net's, are saved much later.
constexpr std::size_t kMaxCalls = 1024;

/// Of a tensor without a gradient: keeping it then costs hardly any memory.
constexpr std::size_t kSmall = 4096;

thread_local Call running;

/// The latest calls, by node. Threads: confined.
class Calls {
 public:
  void add(const compat::NodePtr& node, const Call& call) {
    Entry& entry = calls_[node.get()];
    // Within autocast an operator is called again with cast arguments, and its node was created for
    // those.
    if (entry.call != nullptr && !entry.node.expired()) return;
    entry = {compat::WeakNodePtr(node), call, next_};
    order_.emplace_back(node.get(), next_++);
    if (order_.size() <= kMaxCalls) return;
    // Another node may have its address by now.
    const auto oldest = calls_.find(order_.front().first);
    if (oldest != calls_.end() && oldest->second.number == order_.front().second) {
      calls_.erase(oldest);
    }
    order_.pop_front();
  }

  [[nodiscard]] Call find(const torch::autograd::Node& node) const {
    const auto found = calls_.find(&node);
    if (found == calls_.end() || found->second.node.expired()) return nullptr;
    return found->second.call;
  }

 private:
  struct Entry {
    compat::WeakNodePtr node{};
    Call call;
    std::uint64_t number = 0;
  };

  std::unordered_map<const torch::autograd::Node*, Entry> calls_;
  std::deque<std::pair<const torch::autograd::Node*, std::uint64_t>> order_;
  std::uint64_t next_ = 0;
};

ThreadNotes<Calls>& calls_of_thread() {
  thread_local ThreadNotes<Calls> those;
  return those;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cuda() && !is_wrapper(tensor) && tensor.layout() == at::kStrided &&
         !tensor.is_nested() && tensor.unsafeGetTensorImpl()->version_counter().enabled();
}

/// The kernel in front of an operator.
class Recorder final : public c10::OperatorKernel {
 public:
  explicit Recorder(const RepeatedKind& kind) : kind_(kind) {}

  void operator()(const c10::OperatorHandle& op,
                  c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto last = [stack](std::size_t count) {
      return c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
    };
    const auto arguments = last(op.schema().arguments().size());
    std::vector<c10::IValue> given;
    std::shared_ptr<const RepeatedOperator> repeated;
    if (is_recorded(arguments) && RepeatedOperator::possible(op, kind_, arguments)) {
      given = RepeatedOperator::arguments_of(op, kind_, arguments);
      repeated = std::make_shared<const RepeatedOperator>(op, kind_, given);
    }
    RunningCall call(std::move(repeated), given);
    op.redispatchBoxed(keys & kBehindNoting, stack);
    call.made(last(op.schema().returns().size()));
  }

 private:
  const RepeatedKind& kind_;
};

}  // namespace

PassedTensor::PassedTensor(const at::Tensor& given)
    : storage(given.storage().getWeakStorageImpl()), layout(given), version(given), defined_(true) {
  if (given.grad_fn() != nullptr) {
    node = compat::WeakNodePtr(given.grad_fn());
    output = static_cast<std::uint32_t>(given.output_nr());
  } else if (!given.requires_grad() &&
             (given.storage().nbytes() <= kSmall || is_of_parameter(given))) {
    tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(given.getIntrusivePtr());
  }
}

bool is_recorded(c10::ArrayRef<c10::IValue> arguments) {
  if (!at::GradMode::is_enabled() ||
      c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradCUDA)) {
    return false;
  }
  bool graph = false;
  bool plain = true;
  RepeatedOperator::for_each_tensor(arguments, [&](const at::Tensor& each) {
    if (!each.defined()) return;
    graph = graph || each.requires_grad();
    plain = plain && is_plain(each);
  });
  return graph && plain;
}

RunningCall::RunningCall(std::shared_ptr<const RepeatedCall> repeated,
                         c10::ArrayRef<c10::IValue> arguments)
    : call_(repeated != nullptr ? std::make_shared<OperatorCall>() : nullptr),
      outer_(std::exchange(running, call_)) {
  if (call_ == nullptr) return;
  call_->repeated = std::move(repeated);
  RepeatedOperator::for_each_tensor(arguments, [&](const at::Tensor& each) {
    call_->operands.push_back(each.defined() ? PassedTensor(each) : PassedTensor());
    if (!each.defined() || !each.requires_grad() || !each.is_leaf()) return;
    accumulating_.push_back(torch::autograd::impl::gradient_edge(each));
    call_->operands.back().node = compat::WeakNodePtr(accumulating_.back().function);
  });
}

RunningCall::~RunningCall() {
  running = outer_;
}

void RunningCall::made(c10::ArrayRef<c10::IValue> results) {
  if (call_ == nullptr) return;
  RepeatedOperator::for_each_tensor(results, [&](const at::Tensor& each) {
    if (!each.defined() || each.grad_fn() == nullptr) return;
    calls_of_thread().with([&](Calls& calls) { calls.add(each.grad_fn(), call_); });
  });
}

void RunningCall::made_with_versions(c10::ArrayRef<c10::IValue> results) {
  if (call_ == nullptr || call_->operands_changed()) return;
  RepeatedOperator::for_each_tensor(results, [&](const at::Tensor& each) {
    if (!each.defined() || each.grad_fn() == nullptr) return;
    const auto output = static_cast<std::size_t>(each.output_nr());
    if (call_->versions.size() <= output) call_->versions.resize(output + 1);
    call_->versions[output] = SavedVersion(each).number();
  });
  made(results);
}

bool OperatorCall::operands_changed() const {
  return std::any_of(operands.begin(), operands.end(), [](const PassedTensor& each) {
    return each.defined() && each.version.changed();
  });
}

bool OperatorCall::has(const c10::StorageImpl& storage) const {
  return std::any_of(operands.begin(), operands.end(), [&](const PassedTensor& each) {
    return each.defined() && each.is_of(storage);
  });
}

Call call_of(const torch::autograd::Node& node) {
  return calls_of_thread().with([&](const Calls& calls) { return calls.find(node); });
}

const Call& current_call() {
  return running;
}

void note_calls(torch::Library& noting) {
  for (const RepeatedKind& kind : repeated_kinds()) {
    noting.impl(kind.name,
                torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Recorder>(kind)));
  }
}

}  // namespace spillway
