// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace spillway::operators {

/// Refuses operators over tensors of different devices, as a GPU does. Here all of them are host
/// memory, so without this check a tensor left on the CPU would not be detected.
///
/// A 0-dim CPU tensor that is only read counts as a number. A few arguments may be on the CPU by
/// design.
class DeviceCheck {
 public:
  explicit DeviceCheck(const c10::FunctionSchema& schema);

  /// Errors: raises PyTorch's own "Expected all tensors to be on the same device"; and a refusal by
  /// name if the lists of a foreach operator span several devices, each position on one.
  void operator()(c10::ArrayRef<c10::IValue> arguments) const;

 private:
  struct Argument {
    std::string name;
    bool written;
    bool host_allowed;
  };

  struct Seen {
    std::optional<at::Device> device;
  };

  void check(Seen& seen, const at::Tensor& tensor, const Argument& argument) const;

  std::string operator_name_;
  bool by_position_;  // foreach operators: the i-th tensors of all lists belong together
  std::vector<Argument> arguments_;
};

}  // namespace spillway::operators
