// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint_module.h"
#include "torch_glue/compat.h"
#include "torch_glue/cuda_allocator.h"
#include "torch_glue/lifetime_module.h"
#include "torch_glue/pause_module.h"
#include "torch_glue/pluggable/hooks.h"
#include "torch_glue/raise.h"
#include "torch_glue/region.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/stats_dict.h"
#include "torch_glue/tags_module.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace {

namespace py = pybind11;
using spillway::raise;

#define SPILLWAY_TEXT_INNER(x) #x
#define SPILLWAY_TEXT(x) SPILLWAY_TEXT_INNER(x)
constexpr const char* kBuiltFor =
    SPILLWAY_TEXT(TORCH_VERSION_MAJOR) "." SPILLWAY_TEXT(TORCH_VERSION_MINOR);

/// The order of torch's virtual functions changes with every minor version: another one would call
/// the wrong function silently.
void check_torch_version() {
  const auto version =
      py::str(py::module_::import("torch").attr("__version__")).cast<std::string>();
  if (version.rfind(std::string(kBuiltFor) + ".", 0) == 0) return;
  throw py::import_error("this build of spillway is for torch " + std::string(kBuiltFor) +
                         ", but torch " + version +
                         " is loaded. Build spillway again for it, or install torch " + kBuiltFor);
}

std::uint64_t enter_region(double offload_ratio,
                           const std::string& tag,
                           std::optional<std::uint64_t> min_bytes,
                           std::optional<std::size_t> max_in_flight,
                           bool prefetch,
                           bool names_memory) {
  auto ratio = spillway::Ratio::of(offload_ratio);
  raise(ratio.status());
  spillway::RegionOptions options{spillway::intern_tag(tag), ratio.value()};
  if (min_bytes) options.min_bytes = spillway::Bytes{*min_bytes};
  options.max_in_flight = max_in_flight;
  options.prefetch = prefetch;
  options.names_memory = names_memory;
  auto id = spillway::enter_region(options);
  raise(id.status());
  return id.value();
}

}  // namespace

PYBIND11_MODULE(SPILLWAY_GLUE_NAME, module) {
  check_torch_version();
  module.doc() = "Spillway's LibTorch layer; use it through the package spillway.";
  module.def("use_allocator", [] { raise(spillway::use_allocator()); });
  module.def("install_pluggable_hooks", &spillway::install_pluggable_hooks, py::arg("allocator"));
  module.def("enter_region",
             &enter_region,
             py::arg("offload_ratio"),
             py::arg("tag"),
             py::arg("min_bytes") = py::none(),
             py::arg("max_in_flight") = py::none(),
             py::arg("prefetch") = true,
             py::arg("names_memory") = true);
  module.def("enter_keeping_region", &spillway::enter_keeping_region);
  module.def("leave_region", [](std::uint64_t id) {
    const spillway::Status left = [id] {
      const py::gil_scoped_release released;  // a step that ends here may wait for the device
      return spillway::leave_region(id);
    }();
    raise(left);
  });
  module.def("end_step", &spillway::end_step, py::call_guard<py::gil_scoped_release>());
  module.def("stats", &spillway::stats_dict);
  spillway::define_checkpoints(module);
  spillway::define_lifetimes(module);
  spillway::define_tags(module);
  spillway::bind_pause(module);
}
