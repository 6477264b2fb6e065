// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/scratch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <utility>
#include <vector>

namespace spillway::operators {

/// Recurrent layers in dry runs, modeled on cuDNN: one operator, `aten::_cudnn_rnn`, which keeps a
/// reserve for its backward pass instead of every step's gates. Elsewhere cuDNN is off, and PyTorch
/// composes the layers of cells.
///
/// The reserve is a closed form. It equals cuDNN 9.19's on an H100 within 300 bytes, in 48 shapes
/// of LSTM, GRU and plain layers (half, bfloat16, single and double precision, up to three layers,
/// both directions, dropout). Not measured: projections.

/// The kernels of the layers' operators ("aten::lstm", "input"), for CUDA tensors with and without
/// autograd. Calls whose tensors are small are composed of cells.
std::vector<std::pair<c10::OperatorName, c10::KernelFunction>> recurrent_layers();

/// Whether the operator is cuDNN's forward or backward pass.
bool is_cudnn_recurrent(std::string_view name);

/// The results of the two, by their arguments as Meta tensors (shape_rules.h).
void cudnn_recurrent(const c10::OperatorHandle& op, c10::Stack& stack);
void cudnn_recurrent_backward(const c10::OperatorHandle& op, c10::Stack& stack);

/// The minimum workspace of cuDNN 9.19 on that H100; it used up to four times as much, depending on
/// its choice of algorithm.
Scratch cudnn_recurrent_scratch(c10::ArrayRef<c10::IValue> arguments);
Scratch cudnn_recurrent_backward_scratch(c10::ArrayRef<c10::IValue> arguments);

/// Floating-point operations of the matrix products of both passes.
double cudnn_recurrent_flops(c10::ArrayRef<c10::IValue> arguments);
double cudnn_recurrent_backward_flops(c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::operators
