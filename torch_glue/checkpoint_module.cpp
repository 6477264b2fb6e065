// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/parameters_used.h"
#include "torch_glue/modules.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <spillway/torch/checkpoint.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;

/// Owned by a graph, which may be destroyed on a thread without Python's lock.
std::shared_ptr<py::function> owned_by_graph(py::function function) {
  return {new py::function(std::move(function)), [](py::function* owned) {
            if (Py_IsInitialized() == 0) return;  // it ends with the interpreter
            const py::gil_scoped_acquire gil;
            delete owned;
          }};
}

CheckpointedCall::Recompute in_python(py::function again) {
  return [function = owned_by_graph(std::move(again))](const std::vector<at::Tensor>& inputs) {
    const py::gil_scoped_acquire gil;
    try {
      (*function)(inputs);
    } catch (py::error_already_set& error) {
      // Like autograd's carried exceptions, but this one is freed at once, and with it the weights
      // in its frames. Usually it is the early end of a call whose rest is not needed.
      error.restore();
      python_error carried;
      carried.persist();
      throw carried;
    }
  };
}

py::object python_checkpoint(const py::function& call,
                             const std::vector<at::Tensor>& inputs,
                             py::function again,
                             bool offload_to_cpu,
                             bool preserve_rng_state,
                             bool devices_drew) {
  const CheckpointOptions options{offload_to_cpu, preserve_rng_state, devices_drew};
  CheckpointedCall::Recompute recompute = in_python(std::move(again));
  std::optional<CheckpointedCall> checkpointed;
  {
    const py::gil_scoped_release released;  // host memory may have to be allocated
    checkpointed.emplace(inputs, std::move(recompute), options);
  }
  py::object result = call();
  checkpointed->done();
  return result;
}

/// DeepSpeed's ZeRO 3 gathers its parameters into new memory whenever they are used.
bool gathered_by_deepspeed(const at::Tensor& parameter) {
  const py::gil_scoped_acquire gil;
  return py::hasattr(py::cast(parameter), "ds_id");
}

}  // namespace

void define_checkpoints(py::module_& module) {
  set_gathered_again(&gathered_by_deepspeed);
  module.def("checkpoint",
             &python_checkpoint,
             py::arg("call"),
             py::arg("inputs"),
             py::arg("again"),
             py::arg("offload_to_cpu"),
             py::arg("preserve_rng_state"),
             py::arg("devices_drew"));
}

}  // namespace spillway
