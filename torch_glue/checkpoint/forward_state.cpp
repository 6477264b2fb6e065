// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/forward_state.h"

#include "torch_glue/base/streams.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <mutex>

namespace spillway {
namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

std::vector<at::Generator> generators(bool of_devices) {
  std::vector<at::Generator> all{at::detail::getDefaultCPUGenerator()};
  if (!of_devices) return all;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
    if (!c10::cuda::hasPrimaryContext(device)) continue;
    all.push_back(at::cuda::detail::getDefaultCUDAGenerator(device));
  }
  return all;
}

}  // namespace

ForwardState::ForwardState(bool random, bool devices_drew)
    : preserves_(random && !capturing()),
      autocast_(autocast()),
      autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
  if (!preserves_) return;
  for (at::Generator& generator : generators(devices_drew)) {
    at::Tensor state = state_of(generator);
    random_.push_back({std::move(generator), std::move(state)});
  }
}

void ForwardState::first_call_ended() {
  // A generator first used by the call started from its seed.
  if (preserves_) {
    for (at::Generator& generator : generators(true)) {
      const bool known = std::any_of(random_.begin(), random_.end(), [&](const Random& one) {
        return one.generator == generator;
      });
      if (known) continue;
      at::Generator begun = generator.clone();
      begun.set_offset(0);
      random_.push_back({generator, state_of(begun)});
    }
  }
  std::erase_if(random_,
                [](const Random& one) { return one.state.equal(state_of(one.generator)); });
}

std::vector<ForwardState::Autocast> ForwardState::autocast() {
  std::vector<Autocast> all;
  for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
    all.push_back({device,
                   at::autocast::is_autocast_enabled(device),
                   at::autocast::get_autocast_dtype(device)});
  }
  return all;
}

void ForwardState::apply() const {
  for (const Random& one : random_) {
    at::Generator generator = one.generator;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(one.state);
  }
  for (const Autocast& one : autocast_) {
    at::autocast::set_autocast_enabled(one.device, one.enabled);
    at::autocast::set_autocast_dtype(one.device, one.dtype);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
}

ForwardState::Restored::Restored(const ForwardState& state) {
  before_.autocast_ = autocast();
  before_.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  for (const Random& one : state.random_)
    before_.random_.push_back({one.generator, state_of(one.generator)});
  state.apply();
  at::autocast::increment_nesting();
}

ForwardState::Restored::~Restored() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.apply();
}

}  // namespace spillway
