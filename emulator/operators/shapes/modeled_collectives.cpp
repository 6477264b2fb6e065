// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/modeled_collectives.h"

#include "emulator/operators/boxed_call.h"
#include "emulator/operators/runtime.h"

#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace spillway::operators {
namespace {

/// How many bytes leave each of `n` ranks, by ring algorithms: of all the bytes of one argument
/// this many n-ths. Source: the "bus bandwidth" of nccl-tests (doc/PERFORMANCE.md).
struct Traffic {
  const char* name;
  size_t argument;  // the one whose tensors hold everything
  double (*share)(double n);
};

double all_but_one(double n) {
  return (n - 1) / n;
}

double twice_all_but_one(double n) {
  return 2 * (n - 1) / n;
}

double whole(double) {
  return 1;
}

constexpr Traffic kTraffic[] = {
    {"c10d::allreduce_", 0, twice_all_but_one},
    {"c10d::allreduce_coalesced_", 0, twice_all_but_one},
    {"c10d::reduce_scatter_", 1, all_but_one},
    {"c10d::_reduce_scatter_base_", 1, all_but_one},
    {"c10d::reduce_scatter_tensor_coalesced_", 1, all_but_one},
    {"c10d::allgather_", 0, all_but_one},
    {"c10d::_allgather_base_", 0, all_but_one},
    {"c10d::allgather_into_tensor_coalesced_", 0, all_but_one},
    {"c10d::alltoall_", 1, all_but_one},
    {"c10d::alltoall_base_", 1, all_but_one},
    {"c10d::broadcast_", 0, whole},
    {"c10d::reduce_", 0, whole},
};

void collect(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    into.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef())
      collect(each, into);
  }
}

/// A stream for each group and device.
c10::cuda::CUDAStream stream_of(const c10d::ProcessGroup& group, c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* const streams =
      new std::map<std::pair<std::string, c10::DeviceIndex>, c10::cuda::CUDAStream>;
  const std::scoped_lock lock(mutex);
  const std::pair key(group.getGroupName(), device);
  const auto found = streams->find(key);
  if (found != streams->end()) return found->second;
  const auto made = c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device);
  return streams->emplace(key, made).first->second;
}

/// Keeps its tensors until it is waited for, as NCCL's work does.
class Modeled final : public c10d::Work {
 public:
  Modeled(std::vector<at::Tensor> outputs,
          std::vector<at::Tensor> all,
          c10::cuda::CUDAStream stream)
      : outputs_(std::move(outputs)), kept_(std::move(all)) {
    const c10::StreamGuard guard(stream.unwrap());
    ended_.record(stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{stream.device()});
    future_->markCompleted(c10::IValue(outputs_));
  }

  bool isCompleted() override { return ended_.query(); }

  [[nodiscard]] bool isSuccess() const override { return true; }

  std::vector<at::Tensor> result() override { return outputs_; }

  bool wait(std::chrono::milliseconds) override {
    ended_.block(c10::cuda::getCurrentCUDAStream(outputs_.front().device().index()));
    const std::scoped_lock lock(mutex_);
    kept_.clear();
    return true;
  }

  void synchronize() override { wait(kNoTimeout); }

  void blockCurrentStream() override { wait(kNoTimeout); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> kept_;
  c10::Event ended_{c10::DeviceType::CUDA};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Collective final : public c10::OperatorKernel {
 public:
  Collective(const Traffic& traffic, BoxedCall smaller)
      : traffic_(traffic), smaller_(std::move(smaller)) {}

  void operator()(const c10::OperatorHandle& op,
                  c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const size_t count = schema.arguments().size();
    const auto argument = [&](size_t index) {
      return torch::jit::peek(*stack, index, count);
    };
    std::vector<at::Tensor> moved;
    collect(argument(traffic_.argument), moved);
    uint64_t bytes = 0;
    for (const at::Tensor& each : moved)
      bytes += each.nbytes();
    constexpr uint64_t kTrue = 64U << 10U;
    if (bytes <= kTrue) return smaller_(op, keys, stack);

    const auto group_at = schema.argumentIndexWithName("process_group");
    const auto group = argument(static_cast<size_t>(*group_at)).toCustomClass<c10d::ProcessGroup>();
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> all;
    collect(argument(0), outputs);
    collect(argument(0), all);
    collect(argument(1), all);
    const auto share = traffic_.share(static_cast<double>(group->getSize()));
    auto work = run(*group,
                    static_cast<uint64_t>(share * static_cast<double>(bytes)),
                    std::move(outputs),
                    std::move(all));
    const c10::IValue echoed = argument(0);
    torch::jit::drop(*stack, count);
    if (schema.returns().size() == 2) stack->push_back(echoed);
    stack->emplace_back(std::move(work));
  }

 private:
  static c10::intrusive_ptr<c10d::Work> run(const c10d::ProcessGroup& group,
                                            uint64_t bytes,
                                            std::vector<at::Tensor> outputs,
                                            std::vector<at::Tensor> all) {
    const c10::DeviceIndex device = outputs.front().device().index();
    const c10::DeviceGuard guard(outputs.front().device());
    const auto stream = stream_of(group, device);
    c10::Event called(c10::DeviceType::CUDA);
    called.record(c10::cuda::getCurrentCUDAStream(device));
    called.block(stream);
    emulated_runtime().collective(stream.stream(), bytes);
    return c10::make_intrusive<Modeled>(std::move(outputs), std::move(all), stream);
  }

  const Traffic& traffic_;
  const BoxedCall smaller_;
};

}  // namespace

std::optional<c10::KernelFunction> modeled_collective(const c10::OperatorHandle& op,
                                                      std::optional<c10::KernelFunction> smaller) {
  for (const Traffic& traffic : kTraffic) {
    if (op.schema().name() != traffic.name) continue;
    return c10::KernelFunction::makeFromBoxedFunctor<Collective>(
        std::make_unique<Collective>(traffic, call_of(op, std::move(smaller))));
  }
  return std::nullopt;
}

}  // namespace spillway::operators
