// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace spillway {

/// The version of a tensor when it was saved: a later edit in place is noticed (invariant 9 in
/// docs/invariants.md).
class SavedVersion {
 public:
  SavedVersion() = default;
  explicit SavedVersion(const at::Tensor& tensor);

  [[nodiscard]] const c10::VariableVersion& counter() const { return counter_; }

  /// As autograd counts it; zero for a tensor that has none.
  [[nodiscard]] std::uint32_t number() const { return saved_; }

  /// Whether the tensor has been changed since.
  [[nodiscard]] bool changed() const;

  /// Whether both are the same state of the same tensor.
  [[nodiscard]] bool is(const SavedVersion& other) const;

  /// Throws the c10::Error that says so, of a tensor of these sizes.
  [[noreturn]] void raise(at::IntArrayRef sizes) const;

  void check(at::IntArrayRef sizes) const {
    if (changed()) raise(sizes);
  }

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_ = 0;
};

}  // namespace spillway
