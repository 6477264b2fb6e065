// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/generators.h"

#include "emulator/operators/runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

namespace spillway::operators {
namespace {

/// Neighboring seeds and offsets give unrelated results (the finalizer of SplitMix64).
uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

}  // namespace

Draws::Draws(std::optional<at::Generator> given, c10::DeviceIndex device)
    : given_(std::move(given)), device_(device) {}

bool Draws::as_cpu() const {
  if (replayed_ != nullptr) return replayed_->as_cpu;
  return !given_ && emulated_runtime().rng_is_cpu() != 0;
}

at::PhiloxCudaState Draws::next_state() const {
  if (replayed_ != nullptr) return replayed_->states.at(drawn_.size());
  at::Generator generator = given_ ? *given_ : at::cuda::detail::getDefaultCUDAGenerator(device_);
  auto* philox = at::check_generator<at::CUDAGeneratorImpl>(generator);
  const std::scoped_lock lock(philox->mutex_);
  return philox->philox_cuda_state(/*increment=*/4);
}

Draws::Ticket Draws::next_ticket() const {
  const at::PhiloxCudaState state = next_state();
  drawn_.push_back(state);
  if (!state.captured_) return {state.seed_.val, state.offset_.val, {}};
  // Device memory, which can be read here; the graph's replay has written it in stream order.
  return {static_cast<uint64_t>(*state.seed_.ptr),
          static_cast<uint64_t>(*state.offset_.ptr) + state.offset_intragraph_,
          {}};
}

std::optional<at::Generator> Draws::generator() const {
  if (as_cpu()) return std::nullopt;
  return next_ticket().generator();
}

Draws::Replayable Draws::replayable() const {
  if (as_cpu()) {
    at::Generator own = at::detail::getDefaultCPUGenerator();
    const std::scoped_lock lock(own.mutex());
    return {{0, 0, own.get_state()}, std::nullopt};
  }
  const Ticket taken = next_ticket();
  return {taken, taken.generator()};
}

at::Generator Draws::Ticket::generator() const {
  at::Generator made = at::detail::createCPUGenerator(scramble(seed ^ scramble(offset)));
  if (of_cpu.defined()) made.set_state(of_cpu);
  return made;
}

}  // namespace spillway::operators
