// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Defines the operators that python/spillway/_saved_in_graphs.py puts into the graphs of
/// torch.compile. A second call has no effect.
///
///   spillway::save(Tensor tensor) -> Tensor
///   spillway::keep(Tensor tensor) -> Tensor
///   spillway::load(Tensor handle, SymInt[] size, ScalarType dtype, Device device) -> Tensor
///
/// `save` does what autograd does for a tensor that an operator saves: the innermost region of the
/// thread keeps or offloads it. The result is a handle, a number on the CPU. Its memory owns what
/// was saved: that ends with the last tensor over it, whether the backward pass has run or not.
/// The handle has the strides of the tensor, in dimensions of one element: a compiler that chooses
/// another layout in the forward graph learns them for the backward graph.
/// `keep` is for a tensor that no saved-tensor hook would see and that is used outside of the
/// graph: it stays, and is counted. `load` returns the saved tensor, any number of times. It may
/// share memory with other saved tensors, so what is loaded must not be written.
///
/// Threads: safe. Stream: of autograd's saved tensors, usable on the current stream, no host wait.
/// Errors: c10::Error for a handle that save() has not returned, such as a copy of one.
void define_graph_operators();

}  // namespace spillway
