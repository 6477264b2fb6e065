// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace spillway {

/// Stands in front of the autograd engine from now on: saved tensors of open regions get Spillway's
/// hooks, everything else goes to the engine that was there. CurrentOp it twice changes nothing.
/// Threads: safe. Works with and without Python.
void install_engine();

struct OffloadedRegion;

/// The hooks of a tensor that is saved in this region, as if the regions inside it were not there;
/// null where autograd keeps the tensor itself. Errors: what Python's hooks throw.
std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_in(const OffloadedRegion* region);

}  // namespace spillway
