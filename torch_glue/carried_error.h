// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/Exceptions.h>

#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <thread>
#include <utility>

namespace spillway {

/// A Python error on its way from a thread of autograd's to the one that began the backward pass.
///
/// Up to Python 3.11 it is made where it is caught, of its class and arguments, so that the code
/// that still has this one holds no frames, and with them no tensors. From 3.12 on an error that is
/// set must be made already: PyTorch sets it twice, and the second time would make it with the
/// first one set. So autograd's thread, which may release it later than the other goes on, holds
/// frames until then.
///
/// The code that releases it last needs no Python lock: a thread that waited for it while the
/// interpreter ends would end the process. Python drops what it holds at its next occasion.
class CarriedError : public python_error {
 public:
  /// Requires: the Python lock.
  CarriedError(pybind11::object of_class, pybind11::tuple arguments) {
#if PY_VERSION_HEX >= 0x030C0000
    value = of_class(*arguments).release().ptr();
#else
    value = arguments.release().ptr();
#endif
    type = of_class.release().ptr();
    message = "an error of Python's, on its way";
    ++alive();
  }

  CarriedError(const CarriedError& other) : python_error(other) {
    ++alive();
  }

  CarriedError& operator=(const CarriedError&) = delete;

  ~CarriedError() override {
    for (PyObject** each : {&type, &value})
      Py_AddPendingCall(&drop, std::exchange(*each, nullptr));
    --alive();
  }

  /// Waits a moment for threads that still have one, so that what frames hold is gone when a step
  /// begins. Requires: the Python lock, which it releases meanwhile.
  static void release() {
    if (alive() == 0) return;
    {
      const pybind11::gil_scoped_release released;
      const auto end = std::chrono::steady_clock::now() + kMoment;
      while (alive() > 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    }
    if (Py_MakePendingCalls() != 0) throw pybind11::error_already_set();
  }

 private:
  static constexpr std::chrono::milliseconds kMoment{100};

  static std::atomic<int>& alive() {
    static std::atomic<int> count{0};
    return count;
  }

  static int drop(void* object) {
    Py_DECREF(static_cast<PyObject*>(object));
    return 0;
  }
};

}  // namespace spillway
