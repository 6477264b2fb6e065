// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/run_log.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/kernels.h"
#include "torch_glue/modules.h"
#include "torch_glue/pluggable/hooks.h"
#include "torch_glue/run_log.h"
#include "torch_glue/saved_tensors/source.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

/// A Python path as UTF-8; surrogates replace bytes that are not UTF-8.
std::string utf8(const py::handle& text) {
  return text.attr("encode")("utf-8", "backslashreplace").cast<std::string>();
}

/// The directories of library code, which does not count as the program's.
struct Libraries {
  std::string torch = folder_of("torch");
  std::string ours = folder_of("spillway");

  static std::string folder_of(const char* package) {
    return utf8(py::module_::import(package).attr("__path__")[py::int_(0)]) + "/";
  }

  /// Created by start_run_log(), because an import releases Python's lock to other threads.
  static const Libraries& known() {
    static const Libraries only;
    return only;
  }
};

/// A program may be in a directory of any name, such as Spillway's demonstration.
bool is_of_the_program(const std::string& file) {
  const Libraries& of = Libraries::known();
  if (file.starts_with(of.ours)) return file.starts_with(of.ours + "demo/");
  return !file.starts_with(of.torch) && !file.starts_with('<');
}

/// The innermost line of this thread that belongs to the program.
std::string line_of_the_program() {
  if (Py_IsInitialized() == 0) return {};
  const py::gil_scoped_acquire locked;
  try {
    // Through sys, because the C functions differ between Python's versions.
    py::object frame = py::module_::import("sys").attr("_getframe")(0);
    for (; !frame.is_none(); frame = frame.attr("f_back")) {
      const py::object code = frame.attr("f_code");
      const std::string file = utf8(code.attr("co_filename"));
      if (!is_of_the_program(file)) continue;
      return file + ":" + std::to_string(frame.attr("f_lineno").cast<int>()) + " " +
             utf8(code.attr("co_name"));
    }
  } catch (py::error_already_set&) {  // a thread without a frame
  }
  return {};
}

void start_run_log(const std::string& log, const std::string& about, const std::string& page) {
  RunLog::Options options{log, about, page, serves_torch()};
  raise(RunLog::instance().start(options));
  Libraries::known();
  set_line_source(line_of_the_program);
  if (!options.ours) follow_torch_memory();
}

}  // namespace

void define_run_log(py::module_& module) {
  module.def("start_run_log", &start_run_log, "log"_a, "about"_a, "page"_a);
  module.def("stop_run_log", [] { RunLog::instance().stop(); });
  module.def("run_log_on", &RunLog::on);
  module.def("time_operators", &time_operators);
  module.def(
      "watch_kernels",
      [](int steps, const std::vector<std::string>& cupti_folders) {
        raise(watch_kernels(steps, cupti_folders));
      },
      "steps"_a,
      "cupti_folders"_a);
}

}  // namespace spillway
