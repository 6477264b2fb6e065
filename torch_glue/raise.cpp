// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/modules.h"

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

namespace spillway {
namespace {

[[noreturn]] void raise_as(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw pybind11::error_already_set();
}

}  // namespace

void raise(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return;
    case Code::kInvalidArgument:
      throw pybind11::value_error(status.detail());
    case Code::kOutOfHostMemory:
      raise_as(PyExc_MemoryError, status.detail());
    case Code::kOutOfDeviceMemory:
      raise_as(pybind11::module_::import("torch").attr("OutOfMemoryError").ptr(), status.detail());
    case Code::kNotReady:
      throw std::runtime_error(status.detail());
    default:
      throw std::runtime_error(status.message());
  }
}

}  // namespace spillway
