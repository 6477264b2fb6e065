// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <utility>

namespace spillway {

/// A tensor was changed in place between the passes.
class ChangedTensorError : public c10::Error {
 public:
  ChangedTensorError(c10::SourceLocation where, std::string text, c10::VariableVersion counter)
      : Error(where, std::move(text)), counter_(std::move(counter)) {}

  /// The tensor's version counter, which survives a change of the tensor's memory.
  [[nodiscard]] const c10::VariableVersion& counter() const { return counter_; }

 private:
  c10::VariableVersion counter_;
};

/// Sets the function that returns the program's name of the tensor with a version counter; empty if
/// there is none. It is called without the Python lock and without our locks. It must not throw.
void set_name_finder(std::string (*find)(const c10::VariableVersion& counter));

/// Adds the program's name of the tensor to the error.
/// Requires: the thread holds none of our locks.
void add_name(ChangedTensorError& error);

/// The version of a tensor when it was saved: a later edit in place is noticed (invariant 9 in
/// docs/invariants.md).
class SavedVersion {
 public:
  SavedVersion() = default;
  explicit SavedVersion(const at::Tensor& tensor);

  [[nodiscard]] const c10::VariableVersion& counter() const { return counter_; }

  /// Autograd's version number; zero for a tensor without a version.
  [[nodiscard]] std::uint32_t number() const { return saved_; }

  /// Whether the tensor has been changed since.
  [[nodiscard]] bool changed() const;

  /// Whether both are the same state of the same tensor.
  [[nodiscard]] bool is(const SavedVersion& other) const;

  /// Throws the c10::Error for a changed tensor of these sizes.
  [[noreturn]] void raise(at::IntArrayRef sizes) const;

  void check(at::IntArrayRef sizes) const {
    if (changed()) raise(sizes);
  }

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_ = 0;
};

}  // namespace spillway
