// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace spillway::test_steps {

/// A step of training with all of its classes of memory: each layer has a parameter, a gradient, an
/// optimizer state and an activation. Event i is the forward pass of layer i; then come the
/// backward passes, the last layer first, and the optimizer steps. Between two uses, everything may
/// be away. A parameter has a copy on the host when the step begins, and is written by its
/// optimizer step.
class TrainingStep {
 public:
  explicit TrainingStep(std::mt19937_64& random, std::size_t layers, bool one_event_more = true)
      : random_(random), layers_(layers), events_(3 * layers + (one_event_more ? 1 : 0)) {}

  /// The candidates of a layer, in this order.
  enum Kind : std::size_t {
    kActivation,
    kParameterUntilBackward,
    kParameterUntilStep,
    kParameterUntilForward,  // of the next step
    kGradient,
    kState,
    kKinds,
  };

  [[nodiscard]] std::size_t forward(std::size_t layer) const { return layer; }

  [[nodiscard]] std::size_t backward(std::size_t layer) const { return 2 * layers_ - 1 - layer; }

  [[nodiscard]] std::size_t optimizer(std::size_t layer) const { return 2 * layers_ + layer; }

  [[nodiscard]] StepProfile profile() {
    RecordedStep recorded;
    for (std::size_t event = 0; event < events_; ++event)
      recorded.peaks.push_back(1000 + random_() % 100);
    StepProfile step(std::move(recorded));
    for (std::size_t layer = 0; layer < layers_; ++layer)
      add_layer(step, layer);
    step.memory.storages = step.candidates.size();
    step.memory.besides.resize(step.candidates.size());
    for (std::size_t event = 0; event < events_; ++event)
      step.seconds.push_back(static_cast<double>(1 + random_() % 100) * 1e-3);
    step.link = {static_cast<double>(1000 + random_() % 20000),
                 static_cast<double>(1000 + random_() % 20000),
                 static_cast<double>(random_() % 3) * 1e-3};
    return step;
  }

 private:
  void add_layer(StepProfile& step, std::size_t layer) {
    const std::uint64_t parameter = 50 + random_() % 300;
    const std::uint64_t activation = 50 + random_() % 300;
    for (const std::size_t use : {forward(layer), backward(layer), optimizer(layer)})
      step.memory.peaks[use] += parameter;
    for (const std::size_t use : {backward(layer), optimizer(layer)})
      step.memory.peaks[use] += parameter;
    step.memory.peaks[optimizer(layer)] += 2 * parameter;
    for (const std::size_t use : {forward(layer), backward(layer)})
      step.memory.peaks[use] += activation;

    const auto away = [&](std::uint64_t bytes,
                          bool read,
                          bool written,
                          std::size_t from,
                          std::size_t to) -> Window {
      return {from, to, bytes, from, written ? bytes : 0, read && to < events_ ? bytes : 0};
    };
    const auto add = [&](std::uint64_t bytes, std::vector<Window> windows) {
      std::erase_if(windows, [](const Window& window) { return window.from >= window.to; });
      step.candidates.push_back({bytes, {}, std::move(windows)});
    };
    add(activation, {away(activation, true, true, forward(layer) + 1, backward(layer))});
    if (random_() % 3 == 0)
      step.candidates.back().recompute = static_cast<double>(random_() % 40) * 1e-3;
    add(parameter, {away(parameter, true, false, forward(layer) + 1, backward(layer))});
    add(parameter, {away(parameter, true, false, backward(layer) + 1, optimizer(layer))});
    add(parameter,
        {away(parameter, true, false, 0, forward(layer)),
         away(parameter, false, true, optimizer(layer) + 1, events_)});
    add(parameter, {away(parameter, true, true, backward(layer) + 1, optimizer(layer))});
    add(2 * parameter,
        {away(2 * parameter, true, false, 0, optimizer(layer)),
         away(2 * parameter, false, true, optimizer(layer) + 1, events_)});
  }

  std::mt19937_64& random_;
  const std::size_t layers_;
  const std::size_t events_;
};

}  // namespace spillway::test_steps
