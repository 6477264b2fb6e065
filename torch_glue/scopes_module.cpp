// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/modules.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/saved_tensors/thread_notes.h"

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace spillway {
namespace {

namespace py = pybind11;

/// A resource that is opened at most once and closed at most once.
///
/// Threads: the thread that opens it also closes it. Requires Python's lock.
class Opened {
 public:
  /// Calls `open`, and stores a call of `close` with its result, or without arguments if the result
  /// is None. Both are native functions: Python code could be interrupted within.
  void open(const py::object& open, py::object close) {
    if (close_)
      throw std::logic_error("this scope is already open. Leave it before entering it again.");
    value_ = open();
    close_ = std::move(close);
  }

  /// Does nothing if it is not open.
  void close() {
    const py::object close = std::exchange(close_, py::object());
    const py::object value = std::exchange(value_, py::object());
    if (!close) return;
    value.is_none() ? close() : close(value);
  }

 private:
  py::object close_;  // null: not open
  py::object value_;
};

/// An attribute's name, created once, because entering and leaving are frequent.
/// Requires: Python's lock; `text` is a literal.
py::handle name(const char* text) {
  static std::map<const char*, PyObject*> names;
  PyObject*& found = names[text];
  if (found == nullptr) found = PyUnicode_InternFromString(text);
  return found;
}

/// The resources that this thread has opened by the scope object `self`, in order.
py::list opened_by(const py::object& self) {
  const py::object of_thread = self.attr(name("_opened"));  // a threading.local
  py::object all = py::getattr(of_thread, name("all"), py::none());
  if (all.is_none()) {
    all = py::list();
    py::setattr(of_thread, name("all"), all);
  }
  return all;
}

void close_last(const py::list& all) {
  const py::object last = all[all.size() - 1];
  if (PyList_SetSlice(all.ptr(),
                      static_cast<py::ssize_t>(all.size()) - 1,
                      static_cast<py::ssize_t>(all.size()),
                      nullptr) != 0)
    throw py::error_already_set();
  last.cast<Opened&>().close();
}

/// `__enter__` of scope classes.
py::object enter_scope(const py::object& self) {
  const py::tuple opening = self.attr(name("_opening"))();
  py::list all = opened_by(self);
  const auto opened = std::make_shared<Opened>();
  all.append(py::cast(opened));
  try {
    opened->open(opening[0], opening[1]);
    const py::object entered = self.attr(name("_entered"));
    return entered.is_none() ? self : entered();
  } catch (...) {
    close_last(all);
    throw;
  }
}

/// `__exit__` of scope classes.
void leave(const py::object& self,
           const py::object& /*kind*/,
           const py::object& error,
           const py::object& /*trace*/) {
  const py::list all = opened_by(self);
  if (all.empty()) {
    const auto kind = py::type::of(self).attr("__name__").cast<std::string>();
    throw std::runtime_error(
        kind + " is not open on this thread. Leave it once, on the thread that entered it.");
  }
  const auto left = [&] {
    const py::object then = self.attr(name("_left"));
    if (!then.is_none()) then(error);
  };
  try {
    close_last(all);
  } catch (...) {
    left();
    throw;
  }
  left();
}

/// Replaces the values of some keys of dictionaries. Returns the same list with the former values,
/// by which the exchange is undone.
py::list exchange_items(const py::list& items) {
  py::list before;
  for (const py::handle each : items) {
    const auto item = each.cast<py::tuple>();
    before.append(py::make_tuple(item[0], item[1], item[0][item[1]]));
  }
  for (const py::handle each : items) {
    const auto item = each.cast<py::tuple>();
    item[0][item[1]] = item[2];
  }
  return before;
}

}  // namespace

void define_scopes(py::module_& module) {
  py::class_<Opened, std::shared_ptr<Opened>>(module, "Opened")
      .def(py::init<>())
      .def("open", &Opened::open, py::arg("open"), py::arg("close"))
      .def("close", &Opened::close);
  // Gives a Python class native __enter__ and __exit__.
  module.def("define_scope", [](const py::object& scope) {
    scope.attr("__enter__") =
        py::cpp_function(&enter_scope, py::name("__enter__"), py::is_method(scope));
    scope.attr("__exit__") = py::cpp_function(&leave, py::name("__exit__"), py::is_method(scope));
  });
  module.def("exchange_items", &exchange_items, py::arg("items"));
  module.def("open_regions", &open_regions);
  // Before tensors are swapped.
  module.def("forget_noted_tensors", &AnyThreadNotes::clear_all);
}

}  // namespace spillway
