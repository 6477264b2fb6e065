// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <vector>

namespace spillway::operators {

/// The random numbers of one operator call.
///
/// SPILLWAY_EMULATE_RNG=philox: they depend on the CUDA generator's seed and offset alone, and the
/// call advances the offset. PyTorch's own get_rng_state, set_rng_state and checkpoint thus replay
/// them. =cpu: a call without a generator draws from the CPU's default one, as the same program on
/// the CPU does; an explicit CUDA generator works as in philox.
class Draws {
 public:
  /// The draws of a call, sufficient for the draws of its replays. If the stream was captured, each
  /// replay reads seed and offset from the graph's own tensors.
  struct Record {
    bool as_cpu = false;
    std::vector<at::PhiloxCudaState> states;
  };

  /// Numbers on `device`, from `given` or from that device's default generator.
  Draws(std::optional<at::Generator> given, c10::DeviceIndex device);

  /// Numbers of a replay, in the order of the recorded call. Requires: `record` outlives it.
  explicit Draws(const Record& record) : replayed_(&record) {}

  /// The draws so far.
  [[nodiscard]] Record record() const { return {as_cpu(), drawn_}; }

  /// The generator for a CPU kernel; none means the CPU's default one.
  ///
  /// Errors: raises if `given` is not a CUDA generator.
  [[nodiscard]] std::optional<at::Generator> generator() const;

  /// Seed and offset of the CUDA generator, as CUDA kernels save them for their backward pass; or
  /// the state of the CPU's generator if that was used.
  struct Ticket {
    uint64_t seed = 0;
    uint64_t offset = 0;
    at::Tensor of_cpu;

    /// A generator that repeats the numbers.
    [[nodiscard]] at::Generator generator() const;
  };

  struct Replayable {
    Ticket ticket;
    std::optional<at::Generator> generator;
  };

  /// As `generator`, for numbers that a backward pass repeats.
  [[nodiscard]] Replayable replayable() const;

 private:
  [[nodiscard]] bool as_cpu() const;
  [[nodiscard]] at::PhiloxCudaState next_state() const;
  [[nodiscard]] Ticket next_ticket() const;

  std::optional<at::Generator> given_;
  c10::DeviceIndex device_ = 0;
  const Record* replayed_ = nullptr;
  mutable std::vector<at::PhiloxCudaState> drawn_;
};

}  // namespace spillway::operators
