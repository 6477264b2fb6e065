// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/generators.h"

namespace spillway::operators {

/// The random numbers of an attention operator's dropout, and the data by which the backward pass
/// repeats them: CUDA's kernels save seed and offset as tensors. (If they come from the CPU's
/// generator, its state replaces the seed.)
struct Noise {
  Draws::Ticket ticket;
  std::optional<at::Generator> generator;

  static Noise draw(double dropout, const Draws& draws) {
    if (dropout == 0) return {};
    auto [ticket, generator] = draws.replayable();
    return {std::move(ticket), std::move(generator)};
  }

  /// Flash attention: one tensor of both.
  [[nodiscard]] at::Tensor pair() const {
    if (ticket.of_cpu.defined()) return ticket.of_cpu;
    at::Tensor made = at::empty({2}, at::kUInt64);
    made.mutable_data_ptr<uint64_t>()[0] = ticket.seed;
    made.mutable_data_ptr<uint64_t>()[1] = ticket.offset;
    return made;
  }

  /// The others: two numbers.
  [[nodiscard]] at::Tensor seed() const {
    return ticket.of_cpu.defined() ? ticket.of_cpu : number(ticket.seed);
  }

  [[nodiscard]] at::Tensor offset() const { return number(ticket.offset); }

  static std::optional<at::Generator> again(double dropout, const at::Tensor& pair) {
    if (dropout == 0) return std::nullopt;
    if (pair.scalar_type() == at::kByte) return Draws::Ticket{0, 0, pair}.generator();
    const auto* numbers = pair.const_data_ptr<uint64_t>();
    return Draws::Ticket{numbers[0], numbers[1], {}}.generator();
  }

  static std::optional<at::Generator> again(double dropout,
                                            const at::Tensor& seed,
                                            const at::Tensor& offset) {
    if (dropout == 0) return std::nullopt;
    if (seed.scalar_type() == at::kByte) return Draws::Ticket{0, 0, seed}.generator();
    return Draws::Ticket{static_cast<uint64_t>(seed.item<int64_t>()),
                         static_cast<uint64_t>(offset.item<int64_t>()),
                         {}}
        .generator();
  }

 private:
  static at::Tensor number(uint64_t value) {
    return at::scalar_tensor(static_cast<int64_t>(value), at::kLong);
  }
};

}  // namespace spillway::operators
