// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/collectives.h"

#include "emulator/operators/collective_works.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace spillway::operators {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Reduction = c10::intrusive_ptr<c10d::ReduceOp>;
using Timeout = std::chrono::milliseconds;

c10::intrusive_ptr<c10d::Backend> backend_of(const Group& group) {
  return group->getBackend(c10::DeviceType::CUDA);
}

bool is_gloo(const Group& group) {
  return backend_of(group)->getBackendName() == "gloo";
}

/// A reduction as gloo has it: NCCL's averages and scaled sums are sums, of shares that were scaled
/// before. An average of integers is divided afterwards, and rounds towards zero, as NCCL's does.
struct Scaled {
  c10d::ReduceOp reduction;
  at::Tensor factor;    // of no dimension; undefined: shares are as they are
  int64_t divisor = 1;  // of the result

  Scaled(const Group& group, const Reduction& asked, const at::Tensor& like) : reduction(*asked) {
    if (!is_gloo(group)) return;
    const bool integral = c10::isIntegralType(like.scalar_type(), /*includeBool=*/true);
    if (reduction == c10d::ReduceOp::AVG) {
      if (integral) {
        divisor = group->getSize();
      } else {
        factor = at::scalar_tensor(1.0 / group->getSize(), like.options());
      }
    } else if (reduction == c10d::ReduceOp::PREMUL_SUM) {
      TORCH_CHECK_TYPE(
          !integral,
          "PREMUL_SUM of ",
          like.scalar_type(),
          ": NCCL scales half, bfloat16, float and double only. Use one of these types.");
      const auto* scale =
          static_cast<const c10d::NCCLPreMulSumSupplement*>(asked->supplement_.get());
      TORCH_CHECK(
          scale != nullptr,
          "PREMUL_SUM has no factor. Create the operation with _make_nccl_premul_sum(factor).");
      factor = scale->tensor_factor.defined()
                   ? scale->tensor_factor.to(like.options()).reshape({})
                   : at::scalar_tensor(scale->double_factor, like.options());
    } else {
      return;
    }
    reduction = c10d::ReduceOp::SUM;
  }

  [[nodiscard]] at::Tensor share(const at::Tensor& tensor) const {
    return factor.defined() ? tensor * factor : tensor;
  }

  void scale(const at::Tensor& tensor) const {
    if (factor.defined()) tensor.mul_(factor);
  }

  /// The work whose results are divided, where they have to be.
  [[nodiscard]] WorkPtr divided(WorkPtr work, std::vector<at::Tensor> results) const {
    if (divisor == 1) return work;
    const at::Device device = results[0].device();
    const auto divide = [results = std::move(results), by = divisor] {
      const at::AutoDispatchBelowADInplaceOrView below;
      for (const at::Tensor& result : results)
        result.div_(by, "trunc");
    };
    return c10::make_intrusive<Finished>(std::move(work), device, divide);
  }

  template <class Options>
  [[nodiscard]] Options options(bool async, int64_t timeout) const {
    Options made;
    made.reduceOp = reduction;
    made.timeout = Timeout(timeout);
    made.asyncOp = async;
    return made;
  }
};

std::tuple<std::vector<at::Tensor>, WorkPtr> allreduce(
    at::TensorList tensors,
    const Group& group,
    const Reduction& reduction,
    const std::optional<at::Tensor>& sparse_indices,
    bool async,
    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction, tensors[0]);
  auto in_place = tensors.vec();
  for (const at::Tensor& tensor : in_place)
    scaled.scale(tensor);
  auto options = scaled.options<c10d::AllreduceOptions>(async, timeout);
  options.sparseIndices = sparse_indices;
  auto work = scaled.divided(backend_of(group)->allreduce(in_place, options), in_place);
  return {std::move(in_place), std::move(work)};
}

/// Only the root's tensor is changed.
WorkPtr reduce(at::TensorList tensors,
               const Group& group,
               const Reduction& reduction,
               int64_t root,
               int64_t root_tensor,
               bool async,
               int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction, tensors[0]);
  const bool is_root = group->getRank() == root;
  std::vector<at::Tensor> shares;
  for (const at::Tensor& tensor : tensors) {
    if (is_root) scaled.scale(tensor);
    shares.push_back(is_root || !is_gloo(group) ? tensor : scaled.share(tensor).clone());
  }
  auto options = scaled.options<c10d::ReduceOptions>(async, timeout);
  options.rootRank = root;
  options.rootTensor = root_tensor;
  auto work = backend_of(group)->reduce(shares, options);
  return is_root ? scaled.divided(std::move(work), shares) : work;
}

bool same_sizes(const std::vector<at::Tensor>& tensors, const at::Tensor& as) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.sizes() == as.sizes();
  });
}

/// Of shares that differ in size: each is reduced by itself, to its rank.
WorkPtr reduce_each(const at::Tensor& output,
                    const std::vector<at::Tensor>& shares,
                    const Group& group,
                    const Reduction& reduction,
                    bool async,
                    int64_t timeout) {
  std::vector<WorkPtr> parts;
  at::Tensor own;
  for (int64_t rank = 0; rank < group->getSize(); ++rank) {
    const at::Tensor share = shares[static_cast<size_t>(rank)].clone();
    if (rank == group->getRank()) own = share;
    parts.push_back(reduce(share, group, reduction, rank, 0, async, timeout));
  }
  const auto copy = [output, own] {
    const at::AutoDispatchBelowADInplaceOrView below;
    output.copy_(own, /*non_blocking=*/true);
  };
  return c10::make_intrusive<Finished>(
      c10::make_intrusive<Together>(std::move(parts)), output.device(), copy);
}

std::tuple<std::vector<at::Tensor>, WorkPtr> reduce_scatter(
    const at::TensorList& outputs,
    const std::vector<std::vector<at::Tensor>>& inputs,
    const Group& group,
    const Reduction& reduction,
    bool async,
    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto into = outputs.vec();
  if (is_gloo(group) && into.size() == 1 && !same_sizes(inputs[0], into[0])) {
    auto work = reduce_each(into[0], inputs[0], group, reduction, async, timeout);
    return {std::move(into), std::move(work)};
  }
  const Scaled scaled(group, reduction, outputs[0]);
  auto shares = inputs;
  for (auto& list : shares) {
    for (at::Tensor& tensor : list)
      tensor = scaled.share(tensor);
  }
  auto work = backend_of(group)->reduce_scatter(
      into, shares, scaled.options<c10d::ReduceScatterOptions>(async, timeout));
  work = scaled.divided(std::move(work), into);
  return {std::move(into), std::move(work)};
}

std::tuple<at::Tensor, WorkPtr> reduce_scatter_base(at::Tensor& output,
                                                    at::Tensor& input,
                                                    const Group& group,
                                                    const Reduction& reduction,
                                                    bool async,
                                                    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction, output);
  at::Tensor share = scaled.share(input);
  auto work = backend_of(group)->_reduce_scatter_base(
      output, share, scaled.options<c10d::ReduceScatterOptions>(async, timeout));
  return {output, scaled.divided(std::move(work), {output})};
}

/// Of tensors that differ in size: each rank broadcasts its own.
std::tuple<std::vector<std::vector<at::Tensor>>, WorkPtr> allgather(
    const std::vector<std::vector<at::Tensor>>& outputs,
    at::TensorList inputs,
    const Group& group,
    bool async,
    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto into = outputs;
  auto own = inputs.vec();
  if (!is_gloo(group) || into.size() != 1 || same_sizes(into[0], own[0])) {
    c10d::AllgatherOptions options;
    options.timeout = Timeout(timeout);
    options.asyncOp = async;
    auto work = backend_of(group)->allgather(into, own, options);
    return {std::move(into), std::move(work)};
  }
  into[0][static_cast<size_t>(group->getRank())].copy_(own[0], /*non_blocking=*/true);
  std::vector<WorkPtr> parts;
  for (int64_t rank = 0; rank < group->getSize(); ++rank) {
    c10d::BroadcastOptions options;
    options.rootRank = rank;
    options.timeout = Timeout(timeout);
    options.asyncOp = async;
    std::vector<at::Tensor> one{into[0][static_cast<size_t>(rank)]};
    parts.push_back(backend_of(group)->broadcast(one, options));
  }
  auto work = c10::make_intrusive<Together>(std::move(parts));
  return {std::move(into), std::move(work)};
}

/// Gloo has this for parts of one tensor only.
std::tuple<std::vector<at::Tensor>, WorkPtr> alltoall(at::TensorList outputs,
                                                      at::TensorList inputs,
                                                      const Group& group,
                                                      bool async,
                                                      int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  c10d::AllToAllOptions options;
  options.timeout = Timeout(timeout);
  options.asyncOp = async;
  auto into = outputs.vec();
  auto from = inputs.vec();
  if (!is_gloo(group)) {
    auto work = backend_of(group)->alltoall(into, from, options);
    return {std::move(into), std::move(work)};
  }
  std::vector<at::Tensor> flat;
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  int64_t elements = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    flat.push_back(from[i].reshape({-1}));
    sent.push_back(from[i].numel());
    received.push_back(into[i].numel());
    elements += into[i].numel();
  }
  at::Tensor all_sent = at::cat(flat);
  at::Tensor all_received = at::empty({elements}, into[0].options());
  const std::vector<int64_t> parts_of = received;  // gloo modifies its argument
  auto work = backend_of(group)->alltoall_base(all_received, all_sent, received, sent, options);
  const auto copy = [into, all_received, parts_of] {
    const at::AutoDispatchBelowADInplaceOrView below_too;
    const auto parts = all_received.split_with_sizes(parts_of);
    for (size_t i = 0; i < into.size(); ++i)
      into[i].copy_(parts[i].view(into[i].sizes()), /*non_blocking=*/true);
  };
  const at::Device device = into[0].device();
  return {std::move(into), c10::make_intrusive<Finished>(std::move(work), device, copy)};
}

WorkPtr allreduce_coalesced(at::TensorList tensors,
                            const Group& group,
                            const Reduction& reduction,
                            bool async,
                            int64_t timeout) {
  std::vector<WorkPtr> parts;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(std::get<1>(allreduce(tensor, group, reduction, std::nullopt, async, timeout)));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

WorkPtr reduce_scatter_coalesced(at::TensorList outputs,
                                 at::TensorList inputs,
                                 const Group& group,
                                 const Reduction& reduction,
                                 bool async,
                                 int64_t timeout) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "reduce_scatter_coalesced: ",
              outputs.size(),
              " outputs for ",
              inputs.size(),
              " inputs. Pass one output for each input.");
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor output = outputs[i];
    at::Tensor input = inputs[i];
    parts.push_back(
        std::get<1>(reduce_scatter_base(output, input, group, reduction, async, timeout)));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

WorkPtr allgather_coalesced(at::TensorList outputs,
                            at::TensorList inputs,
                            const Group& group,
                            bool async) {
  TORCH_CHECK(outputs.size() == inputs.size(),
              "allgather_coalesced: ",
              outputs.size(),
              " outputs for ",
              inputs.size(),
              " inputs. Pass one output for each input.");
  const at::AutoDispatchBelowADInplaceOrView below;
  c10d::AllgatherOptions options;
  options.asyncOp = async;
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor output = outputs[i];
    at::Tensor input = inputs[i];
    parts.push_back(backend_of(group)->_allgather_base(output, input, options));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

}  // namespace

std::optional<c10::KernelFunction> collective_kernel(std::string_view name) {
  using c10::KernelFunction;
  if (name == "c10d::allreduce_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allreduce);
  }
  if (name == "c10d::reduce_") return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce);
  if (name == "c10d::allgather_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allgather);
  }
  if (name == "c10d::alltoall_") return KernelFunction::makeFromUnboxedRuntimeFunction(&alltoall);
  if (name == "c10d::reduce_scatter_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter);
  }
  if (name == "c10d::_reduce_scatter_base_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter_base);
  }
  if (name == "c10d::allreduce_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allreduce_coalesced);
  }
  if (name == "c10d::reduce_scatter_tensor_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter_coalesced);
  }
  if (name == "c10d::allgather_into_tensor_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allgather_coalesced);
  }
  return std::nullopt;
}

}  // namespace spillway::operators
