// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

// The fused recurrent cells. Sums and products are in the order of PyTorch's unfused CPU cells and
// of their gradients, so that the rounding is the same.
namespace spillway::operators {
namespace {

at::Tensor plus(const at::Tensor& gates, const c10::IValue& bias) {
  const auto given = optional_tensor(bias);
  return given ? gates + *given : gates;
}

at::Tensor or_zero(const c10::IValue& grad, const at::Tensor& like) {
  const auto given = optional_tensor(grad);
  return given ? *given : at::zeros_like(like);
}

at::Tensor bias_grad(const at::Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : at::Tensor();
}

void lstm_cell(c10::Stack& stack, const Draws&) {
  const at::Tensor gates =
      plus(stack[1].toTensor(), stack[4]) + plus(stack[0].toTensor(), stack[3]);
  const auto chunks = gates.chunk(4, 1);
  const at::Tensor in = chunks[0].sigmoid();
  const at::Tensor forget = chunks[1].sigmoid();
  const at::Tensor cell = chunks[2].tanh();
  const at::Tensor out = chunks[3].sigmoid();
  const at::Tensor cy = forget * stack[2].toTensor() + in * cell;
  set_results(stack, out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1));
}

void lstm_cell_backward(c10::Stack& stack, const Draws&) {
  const at::Tensor cx = stack[2].toTensor();
  const at::Tensor grad_hy = or_zero(stack[0], cx);
  const at::Tensor grad_cy = or_zero(stack[1], cx);
  const at::Tensor tanh_cy = stack[3].toTensor().tanh();
  const bool has_bias = stack[5].toBool();
  const auto chunks = stack[4].toTensor().chunk(4, 1);
  const at::Tensor& in = chunks[0];
  const at::Tensor& forget = chunks[1];
  const at::Tensor& cell = chunks[2];
  const at::Tensor& out = chunks[3];

  const at::Tensor grad_c = grad_cy + at::tanh_backward(grad_hy * out, tanh_cy);
  const at::Tensor gates = at::cat({at::sigmoid_backward(grad_c * cell, in),
                                    at::sigmoid_backward(grad_c * cx, forget),
                                    at::tanh_backward(grad_c * in, cell),
                                    at::sigmoid_backward(grad_hy * tanh_cy, out)},
                                   1);
  set_results(stack, gates, grad_c * forget, bias_grad(gates, has_bias));
}

void gru_cell(c10::Stack& stack, const Draws&) {
  const at::Tensor hx = stack[2].toTensor();
  const auto input = plus(stack[0].toTensor(), stack[3]).chunk(3, 1);
  // The gates are made in place, inside rows of three: how a row lies in memory decides which
  // elements the CPU's vectors take, and with it the last bit of a sigmoid.
  const auto gates = plus(stack[1].toTensor(), stack[4]).clone().chunk(3, 1);
  const at::Tensor hidden = gates[2].clone();
  const at::Tensor reset = gates[0].add_(input[0]).sigmoid_();
  const at::Tensor update = gates[1].add_(input[1]).sigmoid_();
  const at::Tensor fresh = (input[2] + gates[2].mul_(reset)).tanh_();
  const at::Tensor hy = (hx - fresh) * update + fresh;
  set_results(stack, hy, at::cat({reset, update, fresh, hx, hidden}, 1));
}

void gru_cell_backward(c10::Stack& stack, const Draws&) {
  const at::Tensor grad = stack[0].toTensor();
  const bool has_bias = stack[2].toBool();
  const auto chunks = stack[1].toTensor().chunk(5, 1);
  const at::Tensor& reset = chunks[0];
  const at::Tensor& update = chunks[1];
  const at::Tensor& fresh = chunks[2];
  const at::Tensor& hx = chunks[3];
  const at::Tensor& hidden = chunks[4];

  const at::Tensor grad_hx = grad * update;
  const at::Tensor grad_fresh = at::tanh_backward(grad - grad_hx, fresh);
  const at::Tensor grad_update = at::sigmoid_backward(grad * (hx - fresh), update);
  const at::Tensor grad_reset = at::sigmoid_backward(grad_fresh * hidden, reset);
  const at::Tensor input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const at::Tensor gates = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  set_results(stack, input, gates, grad_hx, bias_grad(input, has_bias), bias_grad(gates, has_bias));
}

constexpr NamedBody kRecurrentBodies[] = {
    {"aten::_thnn_fused_lstm_cell", lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> recurrent_bodies() {
  return kRecurrentBodies;
}

}  // namespace spillway::operators
