// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

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

}  // namespace spillway
