// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace spillway {

/// The version of a tensor when it was saved: a later edit in place is noticed (law 9).
class SavedVersion {
 public:
  SavedVersion() = default;
  explicit SavedVersion(const at::Tensor& tensor);

  [[nodiscard]] const c10::VariableVersion& counter() const { return counter_; }

  /// Errors: c10::Error where the tensor, of these sizes, has been changed since.
  void check(at::IntArrayRef sizes) const;

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_ = 0;
};

}  // namespace spillway
