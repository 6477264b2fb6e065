// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/kernel.h"

#include "emulator/operators/accesses.h"
#include "emulator/operators/aliasing.h"
#include "emulator/operators/layouts.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/runtime.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway::operators {
namespace {

/// A copy of the name that lives as long as the process.
const char* interned(const c10::OperatorName& name) {
  return (new std::string(c10::toString(name)))->c_str();
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() &&
         (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

/// Making a tensor sparse, or its indices unique, has the host wait for their number.
bool counts_elements(std::string_view name) {
  return name.starts_with("aten::_to_sparse") || name == "aten::_coalesce";
}

}  // namespace

EmulatedKernel::EmulatedKernel(const c10::OperatorHandle& op, Body body, c10::DispatchKey key)
    : name_(interned(op.operator_name())),
      body_(body),
      key_(key),
      same_device_(op.schema()),
      random_(op.hasTag(at::Tag::nondeterministic_seeded)),
      data_dependent_(op.hasTag(at::Tag::data_dependent_output) ||
                      op.hasTag(at::Tag::dynamic_output_shape) ||
                      counts_elements(op.schema().name())) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    written_.push_back(alias != nullptr && alias->isWrite());
    if (arguments[i].name() == "generator") generator_at_ = i;
    // Indexing has a dynamic shape only under a mask, which shows in the call.
    if (arguments[i].name() == "indices") data_dependent_ = false;
  }
}

c10::Device EmulatedKernel::device_of(c10::ArrayRef<c10::IValue> arguments) const {
  std::optional<c10::Device> device;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!device && tensor.defined() && tensor.is_cuda()) device = tensor.device();
    });
    if (!device && argument.isDevice() && argument.toDevice().is_cuda())
      device = argument.toDevice();
  }
  if (device && device->has_index()) return *device;
  return {c10::kCUDA, c10::cuda::current_device()};
}

bool EmulatedKernel::host_waits(c10::ArrayRef<c10::IValue> arguments) const {
  if (data_dependent_) return true;
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    bool masked = false;
    if (is_optional_tensor_list(argument)) {
      for_each_tensor(argument, [&](const at::Tensor& index) { masked |= is_mask(index); });
    }
    return masked;
  });
}

void EmulatedKernel::operator()(const c10::OperatorHandle& op,
                                c10::DispatchKeySet,
                                c10::Stack* stack) const {
  const EmulatedRuntime& runtime = emulated_runtime();
  const size_t first = stack->size() - written_.size();
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(first);
  same_device_(arguments);
  const c10::Device device = device_of(arguments);
  const c10::DeviceGuard guard(device);
  const CUstream stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();

  Aliases aliases(name_);
  c10::Stack host;
  host.reserve(arguments.size());
  for (const c10::IValue& argument : arguments)
    host.push_back(aliases.to_host(argument));
  const Draws draws(
      generator_at_ ? arguments[*generator_at_].toOptional<at::Generator>() : std::nullopt,
      device.index());
  if (body_ == nullptr && random_ && generator_at_) host[*generator_at_] = draws.generator();

  runtime.drain(stream);
  runtime.begin(stream);
  if (runtime.checks() != 0) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        for_each_part(tensor, name_, [&](const at::Tensor& part) {
          report_access(stream, part, written_[i], name_);
        });
      });
    }
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
    if (body_ != nullptr) {
      body_(host, draws);
    } else {
      op.redispatchBoxed(c10::DispatchKeySet(key_), &host);
    }
  }
  for (const c10::IValue& result : host)
    aliases.adopt(result);
  aliases.adopt_resized();
  if (aliases.allocate()) {
    // The allocator may have made the stream wait for the last user of a block: that comes before
    // the bytes are written, and the operation's clock must know of it.
    runtime.drain(stream);
    runtime.begin(stream);
  }
  aliases.fill([&](const void* at, size_t bytes) { runtime.access(stream, at, bytes, 1, name_); });

  const bool waits = host_waits(arguments);
  stack->resize(first);
  for (const c10::IValue& result : host)
    stack->push_back(aliases.to_device(result));
  if (waits)
    TORCH_CHECK(runtime.synchronize(stream) == cudaSuccess, "the emulated GPU failed in ", name_);
}

void RefusingKernel::operator()(const c10::OperatorHandle& op,
                                c10::DispatchKeySet,
                                c10::Stack*) const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "the emulated GPU does not have the operator ",
                              c10::toString(op.operator_name()),
                              ": run this part on the CPU, or use another operator");
}

}  // namespace spillway::operators
