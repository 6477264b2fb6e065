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

  /// The tensor's version counter, which it keeps when it gets other memory.
  [[nodiscard]] const c10::VariableVersion& counter() const { return counter_; }

 private:
  c10::VariableVersion counter_;
};

/// From now on `find` says what the program calls the tensor with a version counter; empty where it
/// calls it nothing. It is called without the Python lock and any of ours, and must not throw.
void set_name_finder(std::string (*find)(const c10::VariableVersion& counter));

/// Adds to the error what the program calls its tensor. Requires: the thread has none of our locks.
void add_name(ChangedTensorError& error);

}  // namespace spillway
