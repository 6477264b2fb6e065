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

/// Options of an OffloadModel.
struct OffloadModelOptions {
  /// Number of slices of about equal bytes, from 1 to the number of layers. The device holds one
  /// slice at a time. Each slice is divided into two parts if there are enough layers.
  std::size_t num_slices = 3;
  /// Parts keep only their inputs for the backward pass, on the host, and run again in it.
  bool checkpoint_activation = false;
  /// Number of micro-batches into which the input is split along dimension 0. Each part runs all of
  /// them while it is on the device. Results are concatenated along dimension 0.
  std::size_t num_microbatches = 1;
  /// The directory of the file that stores the model; the file has no name. Empty: the model is
  /// stored in pinned host memory.
  std::string directory{};
};

/// For C++ users: trains consecutive layers whose parameters are stored on the host, like Python's
/// spillway.OffloadModel. Each part is loaded while the previous one runs, for the forward pass and
/// once more for the backward pass. Gradients are on the host when the backward pass returns, so
/// the optimizer runs there.
///
///     torch::nn::Sequential net(...);
///     spillway::OffloadModel model(spillway::layers_of(net), torch::Device("cuda:0"));
///     torch::optim::AdamW optimizer(net->parameters());
///     model.forward(x).sum().backward();
///     optimizer.step();
///
/// Threads: forward() on one thread at a time; backward passes on any.
/// Ownership: shares the layers with the graphs of checkpointed parts.
class SPILLWAY_TORCH_API OffloadModel {
 public:
  struct Layer {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> buffers;
    /// Copyable; must compute the same result when it is called again.
    std::function<at::Tensor(const at::Tensor&)> forward;
  };

  /// Errors: c10::ValueError with the name of an invalid option; c10::Error if the tensors cannot
  /// be moved. Nothing has changed then.
  OffloadModel(std::vector<Layer> layers,
               c10::Device device,
               const OffloadModelOptions& options = {});
  ~OffloadModel();
  OffloadModel(const OffloadModel&) = delete;
  OffloadModel& operator=(const OffloadModel&) = delete;

  /// Runs the layers one after the other. The input may be on any device; the result is on the
  /// device.
  /// Stream: the current one. The host waits only for a part in a file, and, if gradients are off,
  /// for buffers that a layer has changed.
  /// Errors: c10::ValueError if the input cannot be split or the results cannot be concatenated;
  /// exceptions of a layer.
  at::Tensor forward(const at::Tensor& input);

  /// Blocks the host until no copy reads or writes the tensors. The end of a backward pass does so
  /// too.
  void wait_for_copies();

  /// Bytes copied since construction, and the device memory for parts.
  [[nodiscard]] OffloadedParts::Stats stats() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// The layers of a torch::nn::Sequential whose modules map one tensor to one tensor.
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
