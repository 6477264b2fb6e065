// SPDX-License-Identifier: Apache-2.0
// Calls of custom autograd functions that may run again: python/spillway/_repeated_function.py.
#include "allocator/base/mutex.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/checkpoint/forward_state.h"
#include "torch_glue/modules.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;

/// Objects that were released on a thread without Python's lock. Recipes and notes are destroyed
/// under locks for which a thread that holds Python's may wait, so nothing here waits for it.
class ReleasedObjects {
 public:
  static void release(PyObject* object) {
    if (Py_IsInitialized() == 0) return;  // it ends with the interpreter
    if (PyGILState_Check() != 0) {
      Py_DECREF(object);
      return;
    }
    const LightLock lock(mutex());
    objects().push_back(object);
  }

  /// Requires: Python's lock.
  static void free() {
    std::vector<PyObject*> freed;
    {
      const LightLock lock(mutex());
      freed.swap(objects());
    }
    for (PyObject* const object : freed)
      Py_DECREF(object);
  }

 private:
  // Never destroyed: threads may end after static objects.
  static LightMutex& mutex() {
    static auto* const mutex = new LightMutex;
    return *mutex;
  }

  static std::vector<PyObject*>& objects() {
    static auto* const objects = new std::vector<PyObject*>;
    return *objects;
  }
};

/// Tensors that only the node saves have numbers from here on.
constexpr std::uint32_t kFirstSaved = 1U << 16U;

/// A call of a custom autograd function.
class RepeatedFunction final : public RepeatedCall {
 public:
  /// `call`: its Python part, with the arguments that are not tensors.
  RepeatedFunction(py::object call, std::string name, bool cheap)
      : RepeatedCall(kind_),
        name_(std::move(name)),
        kind_{name_.c_str(), cheap ? 0U : RepeatedKind::kExpensive},
        call_(call.release().ptr(), &ReleasedObjects::release),
        keys_(keys_of_functions()) {}

  [[nodiscard]] at::Tensor repeat(at::ArrayRef<at::Tensor> tensors,
                                  std::uint32_t output) const override {
    const OffloadDisabledGuard nothing_moves;
    const EnteredRegion entered(enter_keeping_region());
    // A recomputation runs below autograd and autocast. A forward may use both.
    const c10::impl::ForceDispatchKeyGuard as_in_forward(keys_);
    const at::NoGradGuard no_graph;
    const ForwardState::Restored restored(state_);
    const py::gil_scoped_acquire gil;
    try {
      const bool saved = output >= kFirstSaved;
      return py::handle(call_.get())
          .attr("again")(tensors.vec(), saved, saved ? output - kFirstSaved : output)
          .cast<at::Tensor>();
    } catch (py::error_already_set& error) {
      error.restore();
      python_error carried;
      carried.persist();
      throw carried;
    }
  }

  [[nodiscard]] std::optional<std::uint32_t> number_of(const at::Tensor& saved) const override {
    const auto* const found = std::find(saved_.begin(), saved_.end(), saved.unsafeGetTensorImpl());
    if (found == saved_.end()) return std::nullopt;
    return kFirstSaved + static_cast<std::uint32_t>(found - saved_.begin());
  }

  /// Sets the tensors that the node will save, while the call runs. None are null.
  void set_saved(c10::SmallVector<const c10::TensorImpl*, 8> saved) { saved_ = std::move(saved); }

  void ended() {
    saved_.clear();
    state_.first_call_ended();
  }

 private:
  /// Those of this thread, without Python's modes, which exist on this thread only.
  static c10::impl::LocalDispatchKeySet keys_of_functions() {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.included_ = keys.included_ - c10::DispatchKeySet({c10::DispatchKey::Python,
                                                           c10::DispatchKey::PythonTLSSnapshot,
                                                           kNotingKey});
    return keys;
  }

  const std::string name_;
  const RepeatedKind kind_;
  const std::shared_ptr<PyObject> call_;
  const c10::impl::LocalDispatchKeySet keys_;
  ForwardState state_{/*random=*/true, /*devices_drew=*/true};
  c10::SmallVector<const c10::TensorImpl*, 8> saved_;
};

thread_local RepeatedFunction* running = nullptr;

/// During its lifetime, this thread runs that function; null: one that cannot be repeated.
class RunningFunction {
 public:
  explicit RunningFunction(RepeatedFunction* function)
      : outer_(std::exchange(running, function)), function_(function) {}

  ~RunningFunction() {
    running = outer_;
    if (function_ != nullptr) function_->ended();
  }

  RunningFunction(const RunningFunction&) = delete;
  RunningFunction& operator=(const RunningFunction&) = delete;

 private:
  RepeatedFunction* const outer_;
  RepeatedFunction* const function_;
};

bool records_calls() {
  return c10::impl::tls_is_dispatch_key_included(kNotingKey);
}

std::vector<c10::IValue> tensors_in(const py::object& results) {
  std::vector<c10::IValue> tensors;
  const auto add = [&](const py::handle& each) {
    if (THPVariable_Check(each.ptr())) tensors.emplace_back(THPVariable_Unpack(each.ptr()));
  };
  if (!py::isinstance<py::tuple>(results)) {
    add(results);
  } else {
    for (const py::handle each : results)
      add(each);
  }
  return tensors;
}

/// Calls `apply`. `call`: what repeats the forward, from the tensors among `arguments`; None if
/// that is impossible.
py::object run_function(const py::function& apply,
                        py::object call,
                        const py::tuple& arguments,
                        std::string name,
                        bool cheap) {
  ReleasedObjects::free();
  const std::vector<c10::IValue> tensors = tensors_in(arguments);
  std::shared_ptr<RepeatedFunction> repeated;
  if (!call.is_none() && !capturing() && is_recorded(tensors)) {
    repeated = std::make_shared<RepeatedFunction>(std::move(call), std::move(name), cheap);
  }
  RunningCall recorded(repeated, tensors);
  py::object results;
  {
    const RunningFunction function(repeated.get());
    results = apply();
  }
  recorded.made_with_versions(tensors_in(results));
  return results;
}

void will_save(const py::tuple& tensors) {
  if (running == nullptr) return;
  c10::SmallVector<const c10::TensorImpl*, 8> saved;
  for (const py::handle each : tensors) {
    const bool is_tensor = THPVariable_Check(each.ptr());
    saved.push_back(is_tensor ? THPVariable_Unpack(each.ptr()).unsafeGetTensorImpl() : nullptr);
  }
  running->set_saved(std::move(saved));
}

}  // namespace

void define_recomputable(py::module_& module) {
  module.def("records_calls", &records_calls);
  module.def("run_function", &run_function);
  module.def("function_will_save", &will_save);
}

}  // namespace spillway
