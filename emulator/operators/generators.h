// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

namespace spillway::operators {

/// The random numbers of one operator call.
///
/// SPILLWAY_EMULATE_RNG=philox: they follow from the CUDA generator's seed and offset alone, which
/// the call advances, so PyTorch's own get_rng_state, set_rng_state and checkpoint replay them.
/// =cpu: a call without a generator draws from the CPU's default one, as the same program on the
/// CPU does; an explicit CUDA generator works as in philox.
class Draws {
 public:
  /// Numbers on `device`, from `given` or from that device's default generator.
  Draws(std::optional<at::Generator> given, c10::DeviceIndex device);

  /// The generator for a CPU kernel; nothing means the CPU's default one.
  ///
  /// Errors: raises where `given` is not a CUDA generator.
  [[nodiscard]] std::optional<at::Generator> generator() const;

  struct Replayable {
    at::Tensor ticket;  // on the CPU; what `replay` needs
    std::optional<at::Generator> generator;
  };

  /// As `generator`, for numbers that a backward pass draws once more.
  [[nodiscard]] Replayable replayable() const;
  [[nodiscard]] static at::Generator replay(const at::Tensor& ticket);

 private:
  [[nodiscard]] bool as_cpu() const;
  [[nodiscard]] uint64_t next_seed() const;

  std::optional<at::Generator> given_;
  c10::DeviceIndex device_;
};

}  // namespace spillway::operators
