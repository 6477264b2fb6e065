// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/frame.h"

#include "torch_glue/base/compat.h"
#include "torch_glue/checkpoint/running_statistics.h"
#include "torch_glue/saved_tensors/late_writes.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <spillway/torch/checkpoint.h>

#include <exception>
#include <utility>

namespace spillway {
namespace {

/// Ends a repeated call as soon as it has saved the tensors in use.
class CollectedAll final : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "Spillway: the rest of this checkpointed call is not needed";
  }
};

at::Tensor detached(const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach();
  if (tensor.requires_grad()) copy.requires_grad_();
  return copy;
}

std::vector<torch::autograd::SavedVariable> saved(const std::vector<at::Tensor>& tensors) {
  std::vector<torch::autograd::SavedVariable> all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    all.emplace_back(tensor, /*is_output=*/false);
  return all;
}

std::vector<torch::autograd::SavedVariable> saved_on_host(const std::vector<at::Tensor>& tensors) {
  const auto region = enter_region(
      {.tag = intern_tag("checkpoint"), .ratio = Ratio::of(1).value(), .names_memory = false});
  TORCH_CHECK_VALUE(region.ok(), "Spillway: ", region.status().detail());
  const EnteredRegion entered(region.value());
  return saved(tensors);
}

std::vector<torch::autograd::SavedVariable> saved_arguments(const std::vector<at::Tensor>& tensors,
                                                            bool offload_to_cpu) {
  const OffloadedRegion* const around = innermost_region();
  if (around == nullptr || around->rules == nullptr || !around->moves ||
      around->moves->moves_nothing()) {
    return offload_to_cpu ? saved_on_host(tensors) : saved(tensors);
  }
  // Regions with their own rules apply them, whether tensors were to be offloaded or not.
  const auto rules = around->rules;
  rules->begin_checkpoint();
  auto arguments = saved(tensors);
  rules->end_checkpoint();
  return arguments;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const CheckpointFrame::Shape& shape) {
  return out << shape.dtype << at::IntArrayRef(shape.sizes) << " on " << shape.device;
}

/// Replaces a tensor that the first call saved.
class ForgottenTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit ForgottenTensor(std::shared_ptr<CheckpointFrame> frame) : frame_(std::move(frame)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    number_ = frame_->saved_.size();
    version_ = SavedVersion(tensor);
    frame_->saved_.push_back(CheckpointFrame::Shape::of(tensor));
    frame_->used_.saved(tensor);
  }

  at::Tensor call_unpack_hook() override {
    version_.check(frame_->saved_[number_].sizes);
    return frame_->value(number_);
  }

  compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  std::size_t number_ = 0;
  // detects a parameter that has changed since, and would give another value
  SavedVersion version_;
};

/// Collects the tensors that the repeated call saves.
class CheckpointFrame::Collector final : public SavingRules,
                                         public std::enable_shared_from_this<Collector> {
 public:
  Collector(const std::vector<Shape>& expected, ParametersUsed nothing_yet)
      : used(std::move(nothing_yet)), expected_(expected) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    // A backward pass within the call saves its own tensors, on any thread.
    if (torch::autograd::get_current_graph_task_id() != pass_) return nullptr;
    return std::make_unique<Collected>(shared_from_this());
  }

  void take(const at::Tensor& tensor) {
    if (complete()) throw CollectedAll();
    const Shape& expected = expected_[values.size()];
    TORCH_CHECK(Shape::of(tensor) == expected,
                "Spillway: recomputation of a checkpointed function saved another tensor number ",
                values.size(),
                ": ",
                Shape::of(tensor),
                " instead of ",
                expected,
                ". The function must depend only on its inputs, parameters and random numbers.");
    used.saved(tensor);
    values.push_back(tensor.detach());
    // Not before the operator has written the tensors that it has saved.
    if (complete() && !LateWrites::running()) throw CollectedAll();
  }

  [[nodiscard]] bool complete() const { return values.size() == expected_.size(); }

  std::vector<at::Tensor> values;
  ParametersUsed used;

 private:
  class Collected final : public torch::autograd::SavedVariableHooks {
   public:
    explicit Collected(std::shared_ptr<Collector> collector) : collector_(std::move(collector)) {}

    void call_pack_hook(const at::Tensor& tensor) override {
      collector_->take(tensor);
      value_ = collector_->values.back();
    }

    // For a nested checkpoint, whose inputs the call saves, and for gradients taken inside.
    at::Tensor call_unpack_hook() override { return value_; }

    compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

   private:
    const std::shared_ptr<Collector> collector_;
    at::Tensor value_;
  };

  const std::vector<Shape>& expected_;
  const int pass_ = torch::autograd::get_current_graph_task_id();
};

CheckpointFrame::CheckpointFrame(const std::vector<at::Tensor>& inputs,
                                 Recompute recompute,
                                 const CheckpointOptions& options)
    : options_(options),
      called_in_pass_(torch::autograd::get_current_graph_task_id()),
      recompute_(std::move(recompute)),
      state_(options.preserve_rng_state, options.devices_drew),
      inputs_(saved_arguments(inputs, options.offload_to_cpu)),
      used_(inputs) {}

std::unique_ptr<torch::autograd::SavedVariableHooks> CheckpointFrame::hooks() {
  if (torch::autograd::get_current_graph_task_id() != called_in_pass_) return nullptr;
  return std::make_unique<ForgottenTensor>(shared_from_this());
}

at::Tensor CheckpointFrame::value(std::size_t number) {
  const int pass = torch::autograd::get_current_graph_task_id();
  {
    const Lock lock(mutex_);
    if (pass_ == pass && number < values_.size() && values_[number].defined()) {
      return std::exchange(values_[number], {});
    }
  }
  // Without the lock: the call may need Python's lock, and a thread that waits for this one may
  // hold that.
  std::vector<at::Tensor> values = call_again();
  at::Tensor wanted = std::exchange(values[number], {});
  if (pass == -1) return wanted;  // the end of the other tensors' use is unknown
  {
    const Lock lock(mutex_);
    pass_ = pass;
    values.swap(values_);
  }
  forget_at_the_end_of_the_pass();
  return wanted;
}

std::shared_ptr<CheckpointFrame::Collector> CheckpointFrame::run_again() {
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const auto& input : inputs_)
    inputs.push_back(detached(input.unpack()));

  const auto collector = std::make_shared<Collector>(saved_, ParametersUsed(inputs, &used_));
  {
    const OffloadDisabledGuard nothing_moves;
    const EnteredRegion entered(enter_region(collector));
    const at::AutoGradMode gradients(true);
    const ForwardState::Restored restored(state_);
    const RunningStatisticsKept statistics;
    try {
      recompute_(inputs);
    } catch (...) {
      // Whatever caught or replaced the exception that ends the call.
      if (!collector->complete()) throw;
    }
  }
  TORCH_CHECK(collector->complete(),
              "Spillway: recomputation of a checkpointed function saved ",
              collector->values.size(),
              " tensors instead of ",
              saved_.size(),
              ". The function must depend only on its inputs, parameters and random numbers.");
  return collector;
}

std::vector<at::Tensor> CheckpointFrame::call_again() {
  const auto again = run_again();
  std::vector<std::size_t> others = used_.others_in(again->used);
  // Leaves that the call creates itself differ each time, and no longer exist.
  std::erase_if(others, [&](std::size_t other) { return !again->used.parameter(other).defined(); });
  if (others.empty()) return std::move(again->values);

  // Or they are referenced elsewhere: the next run distinguishes them.
  const auto once_more = run_again();
  for (const std::size_t other : others) {
    if (!once_more->used.has(again->used, other)) continue;
    const at::Tensor parameter = again->used.parameter(other);
    TORCH_CHECK(
        false,
        "Spillway: recomputation of a checkpointed function used another parameter, ",
        Shape::of(parameter),
        ", so the gradients would be wrong. Run the backward pass before parameters are "
        "replaced, assigned other memory (.data), or restored (torch.func.functional_call). "
        "Or pass such tensors to the function as arguments, which are kept.");
  }
  return std::move(again->values);
}

void CheckpointFrame::forget_at_the_end_of_the_pass() {
  torch::autograd::Engine::get_default_engine().queue_callback([frame = weak_from_this()] {
    const auto alive = frame.lock();
    if (!alive) return;
    std::vector<at::Tensor> unused;
    const Lock lock(alive->mutex_);
    unused.swap(alive->values_);
    alive->pass_ = -1;
  });
}

struct CheckpointedCall::State {
  State(const std::vector<at::Tensor>& inputs,
        Recompute recompute,
        const CheckpointOptions& options)
      : frame(std::make_shared<CheckpointFrame>(inputs, std::move(recompute), options)),
        region(enter_region(frame)) {}

  const std::shared_ptr<CheckpointFrame> frame;
  const EnteredRegion region;
};

CheckpointedCall::CheckpointedCall(const std::vector<at::Tensor>& inputs,
                                   Recompute recompute,
                                   const CheckpointOptions& options)
    : state_(std::make_unique<State>(inputs, std::move(recompute), options)) {}

CheckpointedCall::~CheckpointedCall() = default;

void CheckpointedCall::done() {
  state_->frame->called();
}

}  // namespace spillway
