// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/late_writes.h"

#include "torch_glue/saved_tensors/pack_hook.h"

#include <torch/library.h>

#include <algorithm>
#include <string>
#include <utility>

namespace spillway {
namespace {

thread_local LateWrites* innermost = nullptr;

/// Written and not returned: autograd does not increment its version.
bool is_written_late(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  const auto* const alias = argument.alias_info();
  if (alias == nullptr || !alias->isWrite()) return false;
  // Only operators of optimizers write lists, and they save nothing.
  if (!argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor())) return false;
  return std::none_of(
      schema.returns().begin(), schema.returns().end(), [alias](const c10::Argument& returned) {
        const auto* const same = returned.alias_info();
        return same != nullptr && same->beforeSets() == alias->beforeSets();
      });
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  LateWrites writes(op, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count));
  // Autograd's own kernel is registered for all autograd keys. It is found under the lowest one,
  // which has no backend. The keys above have been served, although the Python dispatcher's may be
  // in the given set.
  constexpr c10::DispatchKeySet kBehind(c10::DispatchKeySet::FULL_AFTER,
                                        c10::DispatchKey::AutogradFunctionality);
  op.redispatchBoxed((keys & kBehind).add(c10::DispatchKey::AutogradOther), stack);
  writes.finish();
}

}  // namespace

LateWrites::LateWrites(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments)
    : outer_(std::exchange(innermost, this)) {
  const c10::FunctionSchema& schema = op.schema();
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (!is_written_late(schema, schema.arguments()[index])) continue;
    const c10::IValue& value = arguments[index];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
      written_.push_back(value.toTensor().storage().unsafeGetStorageImpl());
    }
  }
}

LateWrites::~LateWrites() {
  innermost = outer_;
}

void LateWrites::finish() {
  written_.clear();
  for (PackHook* const hook : std::exchange(deferred_, {}))
    hook->pack_deferred();
}

LateWrites* LateWrites::of(const at::Tensor& tensor) {
  if (innermost == nullptr || !tensor.has_storage()) return nullptr;
  const auto* const storage = tensor.storage().unsafeGetStorageImpl();
  for (LateWrites* call = innermost; call != nullptr; call = call->outer_) {
    if (std::find(call->written_.begin(), call->written_.end(), storage) != call->written_.end()) {
      return call;
    }
  }
  return nullptr;
}

bool LateWrites::running() {
  return innermost != nullptr;
}

void LateWrites::cancel_deferred(const PackHook& hook) {
  for (LateWrites* call = innermost; call != nullptr; call = call->outer_) {
    std::erase(call->deferred_, &hook);
  }
}

bool writes_late(const c10::FunctionSchema& schema) {
  // An operator without results creates no node that could save a tensor.
  if (schema.returns().empty()) return false;
  return std::any_of(
      schema.arguments().begin(), schema.arguments().end(), [&](const c10::Argument& argument) {
        return is_written_late(schema, argument);
      });
}

void watch_late_writes() {
  using c10::DispatchKey;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const DispatchKey backend : {DispatchKey::AutogradCUDA, DispatchKey::AutogradCPU}) {
    // Never destroyed: its destructor would unregister kernels that other threads run.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "aten", backend, __FILE__, __LINE__);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || name.getNamespace() != "aten" || !writes_late(op->schema())) continue;
      if (!op->hasKernelForDispatchKey(DispatchKey::Autograd)) continue;
      if (op->hasKernelForDispatchKey(backend)) continue;
      const std::string operation = name.name.substr(name.name.rfind(':') + 1);
      library->impl(
          (name.overload_name.empty() ? operation : operation + "." + name.overload_name).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&run>());
    }
  }
}

}  // namespace spillway
