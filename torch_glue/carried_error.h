// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/Exceptions.h>

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <utility>

namespace spillway {

/// A Python error on its way from a thread of autograd's to the one that began the backward pass,
/// as its class and arguments: it is made where it is caught, so that whoever still has this one
/// holds no frames, and with them no tensors.
///
/// Whoever lets go of it last needs no Python lock: a thread that waited for it while the
/// interpreter ends would end the process. Python drops what it holds at its next occasion.
class CarriedError : public python_error {
 public:
  /// Requires: the Python lock.
  CarriedError(pybind11::object of_class, pybind11::tuple arguments) {
    type = of_class.release().ptr();
    value = arguments.release().ptr();
    message = "an error that is made where it is caught";
  }

  CarriedError(const CarriedError&) = default;
  CarriedError& operator=(const CarriedError&) = delete;

  ~CarriedError() override {
    for (PyObject** each : {&type, &value})
      Py_AddPendingCall(&drop, std::exchange(*each, nullptr));
  }

 private:
  static int drop(void* object) {
    Py_DECREF(static_cast<PyObject*>(object));
    return 0;
  }
};

}  // namespace spillway
