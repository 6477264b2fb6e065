// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/Exceptions.h>

#include <initializer_list>
#include <utility>

namespace spillway {

/// A Python error on its way from a thread of autograd's to the one that began the backward pass.
/// Whoever lets go of it last needs no Python lock: a thread that waited for it while the
/// interpreter ends would end the process. Python drops what it holds at its next occasion.
class CarriedError : public python_error {
 public:
  CarriedError() = default;
  CarriedError(const CarriedError&) = default;
  CarriedError& operator=(const CarriedError&) = delete;

  ~CarriedError() override {
    for (PyObject** each : {&type, &value, &traceback}) {
      if (*each != nullptr) Py_AddPendingCall(&drop, std::exchange(*each, nullptr));
    }
  }

 private:
  static int drop(void* object) {
    Py_DECREF(static_cast<PyObject*>(object));
    return 0;
  }
};

/// Throws the error again so that another thread may have it. Requires: the Python lock.
[[noreturn]] inline void carry(pybind11::error_already_set& error) {
  error.restore();
  CarriedError carried;
  carried.persist();
  throw carried;
}

}  // namespace spillway
