// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/guarded_operator.h"

#include "allocator/base/mutex.h"

#include <ATen/core/jit_type.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace spillway {
namespace {

bool is_list_of_tensors(const c10::Argument& argument) {
  const auto* const list = argument.type()->castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_elementwise_over_lists(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  const bool named = name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_") ||
                     name.starts_with("aten::_amp_foreach_");
  if (!named) return false;
  const auto& arguments = schema.arguments();
  // One tensor with a scalar per element of the lists would have to be sliced too.
  const bool has_scalars = std::any_of(arguments.begin(), arguments.end(), [](const auto& each) {
    return each.name() == "scalars" && each.type()->kind() == c10::TypeKind::TensorType;
  });
  return !has_scalars && std::any_of(arguments.begin(), arguments.end(), is_list_of_tensors);
}

bool is_written(const c10::Argument& argument) {
  const auto* const alias = argument.alias_info();
  return alias != nullptr && alias->isWrite();
}

}  // namespace

GuardedOperator::GuardedOperator(const c10::FunctionSchema& schema)
    : takes_lists_(is_elementwise_over_lists(schema)) {
  const bool known = std::string_view(schema.name()).starts_with("aten::");
  for (const c10::Argument& argument : schema.arguments())
    writes_.push_back(!known || is_written(argument));
}

const GuardedOperator& GuardedOperator::of(const c10::OperatorHandle& op) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const GuardedOperator*> seen;
  const c10::FunctionSchema* const key = &op.schema();
  const auto found = seen.find(key);
  if (found != seen.end()) return *found->second;
  static LightMutex mutex;
  static auto* const known =
      new std::unordered_map<c10::OperatorName, std::unique_ptr<const GuardedOperator>>;
  const LightLock lock(mutex);
  auto& entry = (*known)[op.operator_name()];
  if (entry == nullptr) entry = std::make_unique<const GuardedOperator>(op.schema());
  seen.emplace(key, entry.get());
  return *entry;
}

}  // namespace spillway
