// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace spillway {

/// Installs a wrapper around the autograd engine. Saved tensors of open regions get Spillway's
/// hooks; all other calls go to the previous engine. A second call has no effect.
/// Threads: safe. Works with and without Python.
void install_engine();

struct OffloadedRegion;

/// The hooks of a tensor saved in this region, ignoring the regions within it. Null if autograd
/// keeps the tensor itself.
/// Errors: exceptions of Python's hooks.
std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_in(const OffloadedRegion* region);

}  // namespace spillway
