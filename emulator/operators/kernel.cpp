// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/kernel.h"

#include "emulator/operators/accesses.h"
#include "emulator/operators/aliasing.h"
#include "emulator/operators/captured.h"
#include "emulator/operators/costs.h"
#include "emulator/operators/layouts.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/runtime.h"
#include "emulator/operators/shapes/assumed_values.h"
#include "emulator/operators/shapes/meta_tensors.h"
#include "emulator/operators/workspaces.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <tuple>

namespace spillway::operators {
namespace {

/// A copy of the name that lives as long as the process.
const char* interned(const c10::OperatorName& name) {
  return (new std::string(c10::toString(name)))->c_str();
}

/// Making a tensor sparse, or its indices unique, makes the host wait for the number of elements.
bool counts_elements(std::string_view name) {
  return name.starts_with("aten::_to_sparse") || name == "aten::_coalesce";
}

}  // namespace

struct EmulatedKernel::Call {
  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> arguments;
  c10::Device device;
  CUstream stream;
  std::optional<at::Generator> generator;
};

EmulatedKernel::EmulatedKernel(const c10::OperatorHandle& op,
                               const NamedBody* body,
                               c10::DispatchKey key)
    : name_(interned(op.operator_name())),
      body_(body),
      key_(key),
      same_device_(op.schema()),
      shapes_(op),
      scratch_(scratch_rule(op.schema().name())),
      random_(op.hasTag(at::Tag::nondeterministic_seeded)),
      uses_cublas_(uses_cublas(op.schema().name())),
      finds_infinities_(op.schema().name() == "aten::_amp_foreach_non_finite_check_and_unscale_"),
      data_dependent_(op.hasTag(at::Tag::data_dependent_output) ||
                      op.hasTag(at::Tag::dynamic_output_shape) ||
                      counts_elements(op.schema().name())) {
  const auto& arguments = op.schema().arguments();
  written_ = written_arguments(op.schema());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "generator") generator_at_ = i;
    // Indexing has a dynamic shape only under a mask, which the call shows.
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

template <class Visit>
void EmulatedKernel::for_each_access(const Call& call, Visit&& visit) const {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    for_each_tensor(call.arguments[i], [&](const at::Tensor& tensor) {
      for_each_part(tensor, name_, [&](const at::Tensor& part) { visit(part, written_[i]); });
    });
  }
}

void EmulatedKernel::check_memory(const Call& call) const {
  for_each_access(call, [&](const at::Tensor& tensor, bool written) {
    const Extent extent = extent_of(tensor);
    if (extent.bytes == 0) return;
    if (emulated_runtime().touch(call.stream, extent.at, extent.bytes, written ? 1 : 0, name_) ==
        0) {
      C10_CUDA_CHECK(cudaErrorIllegalAddress);
    }
  });
}

void EmulatedKernel::report_cost(const Call& call, c10::ArrayRef<c10::IValue> results) const {
  if (!emulated_runtime().virtual_clock) return;
  const Cost cost = cost_of(name_, call.arguments, results);
  emulated_runtime().cost(call.stream,
                          cost.bytes,
                          cost.flops,
                          static_cast<int>(cost.arithmetic),
                          static_cast<int>(cost.kernel));
}

void EmulatedKernel::compute(const c10::OperatorHandle& op,
                             c10::Stack& host,
                             const Draws& draws) const {
  // Operators within the CPU kernel are not the program's own.
  std::optional<at::RecordFunctionGuard> unobserved;
  if (emulated_runtime().checks) unobserved.emplace(false);
  const c10::impl::ExcludeDispatchKeyGuard below(
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
  if (body_ != nullptr) {
    body_->body(host, draws);
    return;
  }
  if (random_ && generator_at_) host[*generator_at_] = draws.generator();
  op.redispatchBoxed(c10::DispatchKeySet(key_), &host);
}

void EmulatedKernel::run(const Call& call, c10::Stack& results) const {
  const EmulatedRuntime& runtime = emulated_runtime();
  Aliases aliases(name_);
  c10::Stack host;
  host.reserve(call.arguments.size());
  for (const c10::IValue& argument : call.arguments)
    host.push_back(aliases.to_host(argument));
  check_memory(call);
  runtime.drain(call.stream);
  if (runtime.checks) {
    runtime.begin(call.stream);
    for_each_access(call, [&](const at::Tensor& tensor, bool written) {
      report_access(call.stream, tensor, written, name_);
    });
  }
  const Draws draws(call.generator, call.device.index());
  compute(call.op, host, draws);
  // While a graph is captured these are on the device, where a replay can update them.
  for (size_t i = 0; body_ != nullptr && i < host.size(); ++i) {
    if ((body_->on_host >> i & 1U) != 0) aliases.keep_on_host(host[i].toTensor());
  }
  for (const c10::IValue& result : host)
    aliases.adopt(result);
  aliases.adopt_resized();
  if (aliases.allocate()) {
    // The allocator may have made the stream wait for a block's last user. That work must run
    // before the bytes are written, and the operation's clock must include it.
    runtime.drain(call.stream);
    if (runtime.checks) runtime.begin(call.stream);
  }
  aliases.fill([&](const void* at, size_t bytes) {
    if (runtime.checks) runtime.access(call.stream, at, bytes, 1, name_);
  });
  for (const c10::IValue& result : host)
    results.push_back(aliases.to_device(result));
  report_cost(call, results);
}

void EmulatedKernel::capture(const Call& call, c10::Stack& results) const {
  Aliases aliases(name_, shadows(call.stream));
  c10::Stack host;
  for (const c10::IValue& argument : call.arguments)
    host.push_back(aliases.to_host(argument));
  const Draws draws(call.generator, call.device.index());
  compute(call.op, host, draws);
  for (const c10::IValue& result : host)
    aliases.adopt(result);
  aliases.adopt_resized();
  std::ignore = aliases.allocate();
  std::vector<spillway_emulator_view> accesses;
  for_each_access(call, [&](const at::Tensor& tensor, bool written) {
    record_access(accesses, tensor, written);
  });
  aliases.fill([&](const void* at, size_t bytes) {
    accesses.push_back({at, bytes, 0, {}, {}, 1});
  });
  for (const c10::IValue& result : host)
    results.push_back(aliases.to_device(result));
  report_cost(call, results);
  const at::AutoDispatchBelowADInplaceOrView below;
  // After `fill`: a resized argument is replayed with its new size.
  CapturedCall::add(std::make_unique<CapturedCall>(
                        *this, call.op, call.arguments, aliases.result_memory(), draws.record()),
                    call.stream,
                    accesses);
}

bool EmulatedKernel::estimate(const Call& call, c10::Stack& results) const {
  constexpr size_t kComputable = 1U << 20U;  // in bytes: computed if no rule gives the shapes
  const EmulatedRuntime& runtime = emulated_runtime();
  if (!runtime.shape_only) return false;
  MetaTensors tensors(name_);
  c10::Stack meta;
  for (const c10::IValue& argument : call.arguments)
    meta.push_back(tensors.to_meta(argument));
  const bool known = shapes_.apply(call.op, meta);
  const size_t largest = tensors.largest(meta);
  if (largest <= (known ? kSmallBytes : kComputable)) return false;
  TORCH_CHECK_NOT_IMPLEMENTED(
      known,
      name_,
      ": its shapes depend on values, and its ",
      largest >> 20U,
      " MiB are more than a dry run computes. Use spillway emulate, or ",
      assumption_for(name_).empty() ? "use another operator" : "pass --assume ",
      assumption_for(name_),
      ".");
  const bool captured = runtime.capturing(call.stream) != 0;
  check_memory(call);
  if (!captured) runtime.drain(call.stream);
  if (random_) static_cast<void>(Draws(call.generator, call.device.index()).generator());
  for (size_t i = 0; i < meta.size(); ++i) {
    if (body_ != nullptr && (body_->on_host >> i & 1U) != 0) {
      const at::Tensor& like = meta[i].toTensor();
      results.push_back(at::zeros(like.sizes(), like.options().device(at::kCPU)));
      continue;
    }
    results.push_back(tensors.to_device(meta[i], [&](const at::Tensor& made) {
      const auto everywhere = assumed_everywhere(name_, call.arguments, made);
      if (made.nbytes() <= kSmallBytes) {
        fill_small(made, everywhere.value_or(assumed_value(name_, made)));
      } else if (everywhere) {
        remember_value(made, *everywhere);
      }
    }));
  }
  tensors.resize_arguments();
  fill_outputs(call);
  if (finds_infinities_ && !captured) {
    fill_small(call.arguments[1].toTensor(), 1 - runtime.assumed.finite);
  }
  report_cost(call, results);
  if (captured) add_idle_node(call.stream);
  return true;
}

/// The arguments `out=` are results as well, which the caller allocated.
void EmulatedKernel::fill_outputs(const Call& call) const {
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!written_[i] || !arguments[i].kwarg_only()) continue;
    for_each_tensor(call.arguments[i], [&](const at::Tensor& out) {
      if (out.defined() && out.is_cuda() && out.nbytes() <= kSmallBytes) {
        fill_small(out, assumed_value(name_, out));
      }
    });
  }
}

/// A captured operator at each launch of a graph in a dry run: its time only.
void EmulatedKernel::add_idle_node(CUstream stream) const {
  const auto nothing = [](void*) {
  };
  const int result =
      emulated_runtime().add_node(stream, name_, nothing, nothing, nullptr, nullptr, 0);
  C10_CUDA_CHECK(static_cast<cudaError_t>(result));
}

void EmulatedKernel::operator()(const c10::OperatorHandle& op,
                                c10::DispatchKeySet,
                                c10::Stack* stack) const {
  const size_t first = stack->size() - written_.size();
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(first);
  same_device_(arguments);
  const c10::Device device = device_of(arguments);
  const c10::DeviceGuard guard(device);
  const CUstream stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const Call call{
      op,
      arguments,
      device,
      stream,
      generator_at_ ? arguments[*generator_at_].toOptional<at::Generator>() : std::nullopt};
  const bool waits = host_waits(arguments);
  const auto wait = [&] {
    C10_CUDA_CHECK(emulated_runtime().synchronize(stream));
  };

  const at::DataPtr workspace = uses_cublas_ ? cublas_workspace(stream) : at::DataPtr{};

  c10::Stack results;
  results.reserve(op.schema().returns().size());
  if (emulated_runtime().capturing(stream) != 0) {
    if (waits) wait();  // refused, and it ends the capture, as on a GPU
    if (!estimate(call, results)) capture(call, results);
  } else {
    drop_shadows_after_capture();
    if (!estimate(call, results)) run(call, results);
    if (waits) wait();
  }
  if (scratch_ != nullptr) take_scratch(scratch_(arguments));
  stack->resize(first);
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
}

void RefusingKernel::operator()(const c10::OperatorHandle& op,
                                c10::DispatchKeySet,
                                c10::Stack*) const {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "the emulated GPU does not have the operator ",
                              c10::toString(op.operator_name()),
                              ". Run this part on the CPU, or use another operator.");
}

}  // namespace spillway::operators
