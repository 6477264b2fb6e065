// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/device_check.h"

#include "emulator/operators/lists.h"

namespace spillway::operators {
namespace {

struct HostArgument {
  std::string_view operators;  // names that begin so
  std::string_view argument;
};

constexpr HostArgument kHostArguments[] = {
    {"aten::index", "indices"},
    {"aten::_index_put_impl_", "indices"},
    {"aten::_unsafe_index", "indices"},
    {"aten::_ctc_loss", "input_lengths"},
    {"aten::_ctc_loss", "target_lengths"},
    {"aten::_foreach_", "scalars"},
    {"aten::_nested_from_padded", "cpu_nested_shape_example"},
    {"aten::_scaled_dot_product_efficient_attention_backward", "philox_seed"},
    {"aten::_efficient_attention_backward", "philox_seed"},
};

bool host_allowed(std::string_view operator_name, std::string_view argument) {
  return std::any_of(std::begin(kHostArguments), std::end(kHostArguments), [&](HostArgument known) {
    return operator_name.starts_with(known.operators) && argument == known.argument;
  });
}

}  // namespace

DeviceCheck::DeviceCheck(const c10::FunctionSchema& schema)
    : operator_name_(c10::toString(schema.operator_name())),
      by_position_(schema.name().starts_with("aten::_foreach_")) {
  for (const c10::Argument& argument : schema.arguments()) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    arguments_.push_back({argument.name(), written, host_allowed(schema.name(), argument.name())});
  }
}

void DeviceCheck::check(Seen& seen, const at::Tensor& tensor, const Argument& argument) const {
  if (!tensor.defined()) return;
  const at::Device device = tensor.device();
  if (device.is_cpu() && (argument.host_allowed || (tensor.dim() == 0 && !argument.written)))
    return;
  if (!seen.device) seen.device = device;
  TORCH_CHECK(*seen.device == device,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              *seen.device,
              " and ",
              device,
              "! (when checking argument ",
              argument.name,
              " of ",
              operator_name_,
              ")");
}

void DeviceCheck::operator()(c10::ArrayRef<c10::IValue> arguments) const {
  c10::SmallVector<Seen, 1> seen(1);
  for (size_t i = 0; i < arguments.size(); ++i) {
    size_t position = 0;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (by_position_ && position >= seen.size()) seen.resize(position + 1);
      check(seen[by_position_ ? position : 0], tensor, arguments_[i]);
      ++position;
    });
  }
  for (const Seen& position : seen) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !position.device || !seen.front().device || *position.device == *seen.front().device,
        "the emulated GPU runs ",
        operator_name_,
        " on one device at a time, not on lists over ",
        *seen.front().device,
        " and ",
        *position.device,
        ". Call it once for each device.");
  }
}

}  // namespace spillway::operators
