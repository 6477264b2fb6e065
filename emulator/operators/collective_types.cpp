// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/collective_types.h"

#include "emulator/operators/boxed_call.h"
#include "emulator/operators/lists.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>

namespace spillway::operators {
namespace {

constexpr std::array<std::string_view, 13> kNames = {
    "c10d::_allgather_base_",
    "c10d::_reduce_scatter_base_",
    "c10d::allgather_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::allreduce_",
    "c10d::allreduce_coalesced_",
    "c10d::alltoall_",
    "c10d::alltoall_base_",
    "c10d::broadcast_",
    "c10d::gather_",
    "c10d::reduce_",
    "c10d::reduce_scatter_",
    "c10d::scatter_",
};

bool gloo_has(at::ScalarType type) {
  constexpr std::array kTypes = {at::kBool,
                                 at::kByte,
                                 at::kChar,
                                 at::kInt,
                                 at::kLong,
                                 at::kHalf,
                                 at::kBFloat16,
                                 at::kFloat,
                                 at::kDouble};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

/// The first CUDA tensor's type; lists of lists included.
std::optional<at::ScalarType> type_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.is_cuda()) return std::nullopt;
    return tensor.scalar_type();
  }
  if (!value.isList()) return std::nullopt;
  for (const c10::IValue& each : value.toListRef()) {
    if (auto type = type_of(each)) return type;
  }
  return std::nullopt;
}

c10::IValue as_bytes(const c10::IValue& value) {
  if (value.isList() && !value.isTensorList()) {
    c10::impl::GenericList lists(value.toList().elementType());
    for (const c10::IValue& each : value.toListRef())
      lists.push_back(as_bytes(each));
    return lists;
  }
  return map_tensors(value, [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cuda() ? tensor.view(at::kByte) : tensor;
  });
}

class AllTypes final : public c10::OperatorKernel {
 public:
  explicit AllTypes(BoxedCall call) : call_(std::move(call)) {}

  void operator()(const c10::OperatorHandle& op,
                  c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const size_t count = schema.arguments().size();
    auto arguments = torch::jit::last(*stack, count);
    std::optional<at::ScalarType> type;
    for (size_t i = 0; i < count && !type; ++i)
      type = type_of(arguments[i]);
    if (!type || gloo_has(*type) || !is_gloo(schema, arguments)) return call_(op, keys, stack);
    TORCH_CHECK_TYPE(c10::isFloat8Type(*type),
                     schema.name(),
                     ": NCCL takes no tensors of type ",
                     *type,
                     ". Convert them, or view them as a type that it takes.");
    TORCH_CHECK_NOT_IMPLEMENTED(!schema.argumentIndexWithName("reduce_op"),
                                "the emulated GPU does not reduce numbers of type ",
                                *type,
                                " between ranks (",
                                schema.name(),
                                "). Reduce them as bfloat16.");
    const c10::IValue echoed = arguments[0];
    for (size_t i = 0; i < count; ++i) {
      auto& argument = torch::jit::peek(*stack, i, count);
      if (argument.isTensor() || argument.isList()) argument = as_bytes(argument);
    }
    call_(op, keys, stack);
    if (schema.returns().size() == 2) torch::jit::peek(*stack, 0, 2) = echoed;
  }

 private:
  static bool is_gloo(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
    const auto at = schema.argumentIndexWithName("process_group");
    const auto group = arguments[static_cast<size_t>(*at)].toCustomClass<c10d::ProcessGroup>();
    return group->getBackend(c10::DeviceType::CUDA)->getBackendName() == "gloo";
  }

  const BoxedCall call_;
};

}  // namespace

std::optional<c10::KernelFunction> for_all_types(const c10::OperatorHandle& op,
                                                 std::optional<c10::KernelFunction> kernel) {
  if (std::find(kNames.begin(), kNames.end(), op.schema().name()) == kNames.end()) return kernel;
  return c10::KernelFunction::makeFromBoxedFunctor<AllTypes>(
      std::make_unique<AllTypes>(call_of(op, std::move(kernel))));
}

}  // namespace spillway::operators
