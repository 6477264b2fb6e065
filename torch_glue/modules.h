// SPDX-License-Identifier: Apache-2.0
// The parts of the Python module, and what they share.
#pragma once

#include "allocator/base/result.h"

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of checkpointed calls.
void define_checkpoints(pybind11::module_& module);

/// Python bindings of recordings and traces, for python/spillway/trace.py.
void define_lifetimes(pybind11::module_& module);

/// The Python module's part for micro-batches: python/spillway/_microbatches.py.
void define_microbatches(pybind11::module_& module);

/// Python bindings of managed storages, for python/spillway/_managed.py.
void define_model_state(pybind11::module_& module);

/// Adds what python/spillway/_pause.py and memory_saver.py stand on.
void bind_pause(pybind11::module_& module);

/// Python bindings of a budget's plans, for python/spillway/planning.py.
void define_planning(pybind11::module_& module);

/// Python bindings of custom autograd functions that may run again.
void define_recomputable(pybind11::module_& module);

/// Throws the Python exception for a failed Status: ValueError for an invalid argument, MemoryError
/// without host memory, torch.OutOfMemoryError without device memory, else RuntimeError.
void raise(const Status& status);

/// Python bindings of the run log, for python/spillway/recorder.py.
void define_run_log(pybind11::module_& module);

/// Scopes that Python opens and closes on a thread, safe against signal handlers that raise
/// (Ctrl-C). Such a handler finds a scope either open and recorded, or not open. Python runs signal
/// handlers between bytecodes, at the beginning of a function and after calls too. Opening and
/// recording is therefore one call of a native function, as is closing and removing.
/// python/spillway/_scope.py describes the protocol.
void define_scopes(pybind11::module_& module);

/// Python bindings of models whose parts share the device in rotation.

/// The runtime's statistics as documented by spillway.stats().
pybind11::dict stats_dict();

/// Scopes, roles and the accounting by tag, as python/spillway/_tag.py, roles.py and _summary.py
/// wrap them.
void define_tags(pybind11::module_& module);

/// Offloads tensors of Python classes that support `__tensor_flatten__` by their inner tensors,
/// from now on.
void unwrap_python_classes();

}  // namespace spillway
