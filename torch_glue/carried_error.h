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

/// A Python error on its way from an autograd thread to the thread that started the backward pass.
///
/// Up to Python 3.11, the catching thread constructs the error from its class and arguments.
/// Threads that still reference this object then keep no frames alive, and with them no tensors.
/// From 3.12 on the error must be constructed before it is set. PyTorch sets it twice, and the
/// second time would construct it while the first one is set. An autograd thread that releases it
/// late therefore keeps frames alive until then.
///
/// The last release needs no Python lock: waiting for it during interpreter shutdown would end the
/// process. Python frees the objects at its next opportunity.
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

  /// Waits briefly for threads that still reference an error, so that their frames are freed when a
  /// step begins.
  /// Requires: the Python lock, which is released during the wait.
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
