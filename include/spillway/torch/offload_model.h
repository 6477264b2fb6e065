// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <spillway/torch/api.h>
#include <spillway/torch/offloaded_parts.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

struct OffloadModelOptions {
  /// How many slices of about equal bytes, from 1 to the number of layers; the device has room for
  /// one. Each is two parts where there are layers enough.
  std::size_t num_slices = 3;
  /// Parts keep nothing for the backward pass but their inputs, on the host, and run again.
  bool checkpoint_activation = false;
  /// Into how many pieces along dimension 0 the input is split. All pieces run while a part is on
  /// the device, and results are put together along dimension 0.
  std::size_t num_microbatches = 1;
  /// Where the model lives: a file without a name in this folder; pinned memory without one.
  std::string directory{};
};

/// For C++ users: trains layers that follow each other and whose parameters live on the host, as
/// Python's spillway.OffloadModel does. Each part comes in while the one before it runs, for the
/// forward pass and once more for the backward pass; gradients are on the host when the backward
/// pass returns, so the optimizer runs there.
///
///     torch::nn::Sequential net(...);
///     spillway::OffloadModel model(spillway::layers_of(net), torch::Device("cuda:0"));
///     torch::optim::AdamW optimizer(net->parameters());
///     model.forward(x).sum().backward();
///     optimizer.step();
///
/// Threads: forward() on one thread at a time; backward passes on any.
/// Ownership: holds the layers, as graphs do that checkpointed parts have made.
class SPILLWAY_TORCH_API OffloadModel {
 public:
  struct Layer {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> buffers;
    /// Copyable; must do the same when it is called again.
    std::function<at::Tensor(const at::Tensor&)> forward;
  };

  /// Errors: c10::ValueError for an option, by name; c10::Error; nothing has changed then.
  OffloadModel(std::vector<Layer> layers,
               c10::Device device,
               const OffloadModelOptions& options = {});
  ~OffloadModel();
  OffloadModel(const OffloadModel&) = delete;
  OffloadModel& operator=(const OffloadModel&) = delete;

  /// The layers one after the other. The input may be anywhere; the result is on the device.
  /// Stream: the current one; the host waits only where no gradients are recorded, for buffers that
  /// have changed. Errors: c10::ValueError for an input or results that cannot be split or put
  /// together; what a layer throws.
  at::Tensor forward(const at::Tensor& input);

  /// Blocks the host until no copy reads or writes the tensors. A backward pass does so at its end.
  void wait_for_copies();

  [[nodiscard]] OffloadedParts::Stats stats() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// What a torch::nn::Sequential of modules from one tensor to one tensor has.
template <typename Sequential>
std::vector<OffloadModel::Layer> layers_of(Sequential& net) {
  std::vector<OffloadModel::Layer> layers;
  for (auto& module : *net) {
    const auto inside = module.ptr();
    layers.push_back(
        {inside->parameters(), inside->buffers(), [module](const at::Tensor& x) mutable {
           return module.template forward<at::Tensor>(x);
         }});
  }
  return layers;
}

}  // namespace spillway
