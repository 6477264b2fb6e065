// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace spillway::operators {

/// True for a list whose elements are tensors or None (the indices of aten::index).
inline bool is_optional_tensor_list(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto optional = value.toList().elementType()->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

/// True for an index that selects by its elements' values.
inline bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() &&
         (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

/// Calls `visit(tensor)` for every tensor in the value: itself, or the elements of a list.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || is_optional_tensor_list(value)) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

/// The value with each tensor replaced by `map(tensor)`; other values are unchanged.
template <class Map>
c10::IValue map_tensors(const c10::IValue& value, Map&& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    mapped.reserve(value.toListRef().size());
    for (const c10::IValue& element : value.toListRef())
      mapped.push_back(map(element.toTensor()));
    return mapped;
  }
  if (is_optional_tensor_list(value)) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const c10::IValue& element : value.toListRef()) {
      mapped.push_back(element.isNone() ? std::nullopt
                                        : std::optional<at::Tensor>(map(element.toTensor())));
    }
    return mapped;
  }
  return value;
}

}  // namespace spillway::operators
