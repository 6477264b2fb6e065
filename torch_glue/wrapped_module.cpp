// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/modules.h"
#include "torch_glue/saved_tensors/wrapped.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>
#include <utility>

namespace spillway {
namespace {

namespace py = pybind11;

/// The data to recreate the tensor. Freed under the Python lock, or leaked after Python has ended.
struct Recipe {
  py::object type;
  py::list names;   // of its tensors
  py::dict others;  // its other parts by name, such as a DTensor's mesh from torch 2.15 on
  py::object context;
  py::object size;
  py::object stride;
};

void free_recipe(Recipe* recipe) {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire locked;
  delete recipe;
}

at::Tensor wrap(const Recipe& recipe, const std::vector<at::Tensor>& inner) {
  const py::gil_scoped_acquire locked;
  const at::NoGradGuard no_graph;
  py::dict parts = recipe.others.attr("copy")();
  for (std::size_t index = 0; index < inner.size(); ++index)
    parts[recipe.names[index]] = py::cast(inner[index]);
  const py::object made =
      recipe.type.attr("__tensor_unflatten__")(parts, recipe.context, recipe.size, recipe.stride);
  return made.cast<at::Tensor>().detach();
}

bool attempt(c10::function_ref<void()> ask) {
  const py::gil_scoped_acquire locked;
  try {
    ask();
    return true;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  } catch (python_error& error) {
    // From a call through PyTorch's dispatcher, which leaves the error set.
    error.persist();
    error.restore();
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw;
    PyErr_Clear();
  } catch (const std::exception& error) {
    static_cast<void>(error);
  }
  return false;
}

std::optional<WrappedTensor> unwrap_object(const py::object& object) {
  if (!py::hasattr(object, "__tensor_flatten__")) return std::nullopt;
  // A collective is still writing to it (AsyncCollectiveTensor): a copy now would be undefined.
  if (py::hasattr(object, "trigger_wait")) return std::nullopt;
  const py::tuple flat = object.attr("__tensor_flatten__")();
  const std::shared_ptr<Recipe> recipe(new Recipe{py::type::of(object),
                                                  py::list(),
                                                  py::dict(),
                                                  flat[1],
                                                  object.attr("size")(),
                                                  object.attr("stride")()},
                                       free_recipe);
  WrappedTensor wrapped;
  for (const auto& name : flat[0]) {
    const py::object part = py::getattr(object, name);
    if (THPVariable_Check(part.ptr())) {
      recipe->names.append(name);
      wrapped.inner.push_back(part.cast<at::Tensor>());
    } else {
      recipe->others[name] = part;
    }
  }
  wrapped.wrap = [recipe](const std::vector<at::Tensor>& inner) {
    return wrap(*recipe, inner);
  };
  return wrapped;
}

std::optional<WrappedTensor> unwrap(const at::Tensor& tensor) {
  // Symbolic sizes, such as those of a jagged nested tensor, belong to the tensors that it wraps
  // now: other inner tensors would give it other sizes.
  if (tensor.is_nested() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return std::nullopt;
  }
  std::optional<WrappedTensor> wrapped;
  // If the class raises, it does not support this here: the tensor stays on the device.
  if (!attempt([&] { wrapped = unwrap_object(py::cast(tensor)); })) return std::nullopt;
  return wrapped;
}

}  // namespace

void unwrap_python_classes() {
  set_python_classes(unwrap, attempt);
}

}  // namespace spillway
