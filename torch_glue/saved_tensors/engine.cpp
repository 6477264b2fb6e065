// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/engine.h"

#include "allocator/device/fork.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_tensors/late_writes.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <ATen/SavedTensorHooks.h>

#include <mutex>
#include <string>
#include <utility>

namespace spillway {
namespace {

namespace autograd = torch::autograd;

/// Never destroyed: the base class's destructor would join threads.
class ProxyEngine final : public autograd::Engine {
 public:
  /// `real`: Python's engine or the default one. Both are static objects, and Python's is
  /// reconstructed in place after a fork, so the reference stays valid.
  explicit ProxyEngine(autograd::Engine& real) : real_(real) {}

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs,
                                  bool keep_graph,
                                  bool create_graph,
                                  bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    try {
      return real_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    } catch (c10::OutOfMemoryError& error) {
      if (std::string text = take_end_of_memory(); !text.empty())
        error.add_context(std::move(text));
      throw;
    }
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      compat::GraphTaskRef task, compat::NodePtr root, autograd::InputBuffer&& inputs) override {
    return real_.execute_with_graph_task(task, std::move(root), std::move(inputs));
  }

  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return real_.make_anomaly_metadata();
  }

  void thread_on_exception(compat::GraphTaskRef task,
                           const compat::NodePtr& node,
                           std::exception& error) override {
    real_.thread_on_exception(task, node, error);
  }

  void thread_init(int device,
                   const std::shared_ptr<autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    real_.thread_init(device, queue, should_increment);
  }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return hooks_in(innermost_region());
  }

  std::unique_ptr<autograd::SavedVariableHooks> hooks_in(const OffloadedRegion* region) {
    // CUDA does not survive a fork: a child saves its tensors as without Spillway.
    if (region == nullptr || in_forked_child() || (!region->moves && !region->rules)) {
      return real_.get_default_saved_variable_hooks();
    }
    const auto& python = at::SavedTensorDefaultHooks::get_tls_state();
    if (python.is_tracing || python.stack.size() > region->python_hooks) {
      const bool asks =
          region->moves && (region->moves->recompute || !region->moves->moves_nothing());
      if (asks && !python.is_tracing) Runtime::instance().step().saved_elsewhere();
      return real_.get_default_saved_variable_hooks();
    }
    if (region->rules) return region->rules->hooks();
    return std::make_unique<PackHook>(&*region->moves);
  }

 private:
  autograd::Engine& real_;
};

ProxyEngine* proxy = nullptr;

}  // namespace

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    watch_late_writes();
    proxy = new ProxyEngine(autograd::Engine::get_default_engine());
    autograd::set_default_engine_stub([]() -> autograd::Engine& { return *proxy; });
  });
}

std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_in(const OffloadedRegion* region) {
  return proxy->hooks_in(region);
}

}  // namespace spillway
