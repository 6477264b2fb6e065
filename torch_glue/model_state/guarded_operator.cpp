// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/guarded_operator.h"

#include "allocator/base/mutex.h"

#include <ATen/core/jit_type.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
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
  const auto& returns = schema.returns();
  return !has_scalars && std::all_of(returns.begin(), returns.end(), is_list_of_tensors) &&
         std::any_of(arguments.begin(), arguments.end(), is_list_of_tensors);
}

bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  // Some declare a part of the lists that they write.
  if (std::string_view(schema.name()).starts_with("aten::_fused_") && is_list_of_tensors(argument))
    return true;
  if (argument.name() == "running_mean" || argument.name() == "running_var") return true;
  const auto* const alias = argument.alias_info();
  return alias != nullptr && alias->isWrite();
}

bool may_have_tensors(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::GeneratorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::QSchemeType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::StreamObjType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::SymIntType:
      return false;
    case c10::TypeKind::ListType:
      return may_have_tensors(type->castRaw<c10::ListType>()->getElementType());
    case c10::TypeKind::OptionalType:
      return may_have_tensors(type->castRaw<c10::OptionalType>()->getElementType());
    default:
      return true;
  }
}

/// Its result contains the tensors that it is given.
bool is_wrapper_of(std::string_view name) {
  if (name == "aten::_nested_view_from_buffer") return true;
  constexpr std::array kWrappers{"sparse_coo_tensor",
                                 "sparse_compressed_tensor",
                                 "sparse_csr_tensor",
                                 "sparse_csc_tensor",
                                 "sparse_bsr_tensor",
                                 "sparse_bsc_tensor"};
  return std::any_of(kWrappers.begin(), kWrappers.end(), [&](std::string_view wrapper) {
    return name.find(wrapper) != name.npos;
  });
}

}  // namespace

GuardedOperator::GuardedOperator(const c10::FunctionSchema& schema)
    : takes_lists_(is_elementwise_over_lists(schema)),
      of_pytorch_(std::string_view(schema.name()).starts_with("aten::")),
      sets_storage_(schema.name() == "aten::set_"),
      detaches_(schema.name() == "aten::detach" || schema.name() == "aten::alias"),
      casts_(schema.name() == "aten::_to_copy"),
      wraps_(is_wrapper_of(schema.name())) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (!of_pytorch_ || may_have_tensors(argument.type())) tensors_.push_back(writes_.size());
    writes_.push_back(!of_pytorch_ || is_written(schema, argument));
  }
}

const GuardedOperator& GuardedOperator::of(const c10::OperatorHandle& op) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const GuardedOperator*> seen;
  const c10::FunctionSchema& schema = op.schema();
  const auto found = seen.find(&schema);
  // Another library may define an operator again, and another one's schema may have its address.
  if (found != seen.end() && found->second->is_of(schema)) return *found->second;
  static LightMutex mutex;
  static auto* const known =
      new std::unordered_map<c10::OperatorName, std::unique_ptr<const GuardedOperator>>;
  const LightLock lock(mutex);
  auto& entry = (*known)[op.operator_name()];
  if (entry == nullptr || !entry->is_of(schema)) {
    static_cast<void>(entry.release());  // other threads may be using it
    entry = std::make_unique<const GuardedOperator>(schema);
  }
  seen[&schema] = entry.get();
  return *entry;
}

}  // namespace spillway
