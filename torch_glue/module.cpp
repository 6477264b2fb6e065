// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/carried_error.h"
#include "torch_glue/compiled/graph_operators.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/job.h"
#include "torch_glue/modules.h"
#include "torch_glue/pluggable/hooks.h"
#include "torch_glue/region.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <spillway/torch/region.h>

namespace {

namespace py = pybind11;
using spillway::raise;

#define SPILLWAY_TEXT_INNER(x) #x
#define SPILLWAY_TEXT(x) SPILLWAY_TEXT_INNER(x)
constexpr const char* kBuiltFor =
    SPILLWAY_TEXT(TORCH_VERSION_MAJOR) "." SPILLWAY_TEXT(TORCH_VERSION_MINOR);

/// The order of torch's virtual functions changes with every minor version: another version would
/// silently call the wrong function.
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
                           bool names_memory,
                           const std::optional<spillway::Budget>& budget,
                           std::optional<std::uint64_t> prefetch_headroom,
                           bool recompute) {
  auto ratio = spillway::Ratio::of(offload_ratio);
  raise(ratio.status());
  if (budget) spillway::CarriedError::release();
  if (!tag.empty()) raise(spillway::check_tag_name(tag));
  spillway::RegionOptions options{spillway::intern_tag(tag), ratio.value()};
  if (min_bytes) options.min_bytes = spillway::Bytes{*min_bytes};
  options.max_in_flight = max_in_flight;
  options.prefetch = prefetch;
  options.names_memory = names_memory;
  options.recompute = recompute;
  if (prefetch_headroom) options.prefetch_headroom = spillway::Bytes{*prefetch_headroom};
  options.budget = budget;
  auto id = spillway::enter_region(options);
  raise(id.status());
  return id.value();
}

using Limit = spillway::DeviceLimits::Limit;

spillway::DeviceRuntime& device_at(int index) {
  const auto device = spillway::Runtime::instance().device(spillway::DeviceId{index});
  raise(device.status());
  return *device.value();
}

void set_memory_limit(int device, std::uint64_t limit, bool soft) {
  const spillway::Status set = [&] {
    spillway::DeviceRuntime& on = device_at(device);
    const py::gil_scoped_release released;  // waits for released memory
    return on.limits().set(soft ? Limit::kSoft : Limit::kAbsolute, spillway::Bytes{limit});
  }();
  raise(set);
}

std::uint64_t memory_limit(int device, bool soft) {
  return device_at(device).limits().of(soft ? Limit::kSoft : Limit::kAbsolute).count();
}

/// What error_of() makes a BudgetError of.
py::tuple as_tuple(const spillway::BudgetMiss& missed) {
  return py::make_tuple(static_cast<int>(missed.device),
                        missed.budget.count(),
                        missed.shortage.least.count(),
                        missed.shortage.lower_bound,
                        missed.shortage.begin.count(),
                        missed.step,
                        missed.first_saved_shape,
                        missed.shortage.activations.count(),
                        missed.shortage.host_memory_short);
}

/// At the end of a backward pass, without the Python lock. If an optimizer step follows, its end
/// reports the miss: more is known then, and the parameters are those of a whole step.
void report_budget_miss() {
  if (!spillway::Runtime::instance().step().budget_missed()) return;
  const py::gil_scoped_acquire locked;
  const py::module_ python = py::module_::import("spillway.budget_error");
  if (python.attr("optimizers_to_step")().cast<int>() > 0) return;
  const auto missed = spillway::Runtime::instance().step().take_budget_miss();
  if (!missed) return;
  if (missed->warns) {
    python.attr("warn")(as_tuple(*missed), missed->adapts);
    return;
  }
  const py::object error = python.attr("error_of")(as_tuple(*missed));
  throw spillway::CarriedError(python.attr("BudgetError"), error.attr("args"));
}

/// The name of a parameter or buffer of an existing module.
std::string find_name(const c10::VariableVersion& counter) {
  const py::gil_scoped_acquire locked;
  try {
    const py::object all = py::module_::import("spillway._tensor_names").attr("named_tensors")();
    for (const auto& each : all.cast<std::vector<std::pair<std::string, at::Tensor>>>()) {
      const c10::VariableVersion& its = each.second.unsafeGetTensorImpl()->version_counter();
      if (its.enabled() &&
          spillway::compat::counter_identity(its) == spillway::compat::counter_identity(counter))
        return each.first;
    }
  } catch (const std::exception&) {  // an error in progress has priority
  }
  return {};
}

}  // namespace

PYBIND11_MODULE(SPILLWAY_GLUE_NAME, module) {
  check_torch_version();
  module.doc() = "Spillway's LibTorch layer; use it through the package spillway.";
  module.def("use_allocator", [] { raise(spillway::use_allocator()); });
  // Bytes of every present and later device; 0 removes the limit.
  module.def("limit_memory", [](std::uint64_t limit) {
    raise(spillway::Runtime::instance().devices().set_memory_limit(spillway::Bytes{limit}));
  });
  module.def(
      "set_memory_limit", &set_memory_limit, py::arg("device"), py::arg("limit"), py::arg("soft"));
  module.def("memory_limit", &memory_limit, py::arg("device"), py::arg("soft"));
  module.def("install_pluggable_hooks", &spillway::install_pluggable_hooks, py::arg("allocator"));
  module.def("enter_region",
             &enter_region,
             py::arg("offload_ratio"),
             py::arg("tag"),
             py::arg("min_bytes") = py::none(),
             py::arg("max_in_flight") = py::none(),
             py::arg("prefetch") = true,
             py::arg("names_memory") = true,
             py::arg("budget") = py::none(),
             py::arg("prefetch_headroom") = py::none(),
             py::arg("recompute") = false);
  module.def("start_job", [] { raise(spillway::start_job()); });
  module.def("enter_recomputing_region", [] {
    auto id = spillway::enter_recomputing_region();
    raise(id.status());
    return id.value();
  });
  module.def("enter_keeping_region", &spillway::enter_keeping_region);
  module.def("leave_region", [](std::uint64_t id) {
    const spillway::Status left = [id] {
      const py::gil_scoped_release released;  // a step that ends here may wait for the device
      return spillway::leave_region(id);
    }();
    raise(left);
  });
  module.def(
      "end_step",
      [](bool optimized) {
        spillway::end_step(optimized ? spillway::StepEnd::kOptimizerStepped
                                     : spillway::StepEnd::kRequested);
      },
      py::arg("optimized") = false,
      py::call_guard<py::gil_scoped_release>());
  module.def("stats", &spillway::stats_dict);
  module.def("define_graph_operators", &spillway::define_graph_operators);
  module.def("graphs_are_compiled",
             [] { spillway::Runtime::instance().step().graphs_are_compiled(); });
  module.def("has_budget", [] { return spillway::Runtime::instance().step().has_budget(); });
  module.def(
      "model_state",
      [](int device, std::uint64_t bytes) {
        spillway::Runtime::instance().step().model_state(spillway::DeviceId{device},
                                                         spillway::Bytes{bytes});
      },
      py::arg("device"),
      py::arg("bytes"));
  module.def("budget_missed", [] { return spillway::Runtime::instance().step().budget_missed(); });
  // Returns the missed budget once, if it is that of `entered`: what error_of() is given,
  // and three flags. They are: it is only a warning; the step was the first with an optimizer step;
  // the next step of its shape may meet the budget.
  module.def(
      "take_budget_miss",
      [](const std::optional<spillway::Budget>& entered) -> py::object {
        const auto missed = spillway::Runtime::instance().step().take_budget_miss();
        if (!missed) return py::none();
        const int device = static_cast<int>(missed->device);
        if (entered && device_at(device).budget().bytes_of(*entered) != missed->budget)
          return py::none();
        return py::make_tuple(as_tuple(*missed), missed->warns, missed->first, missed->adapts);
      },
      py::arg("entered") = py::none());
  module.def("take_end_of_memory", &spillway::take_end_of_memory);
  spillway::set_miss_reporter(&report_budget_miss);
  spillway::set_name_finder(&find_name);
  spillway::unwrap_python_classes();
  spillway::define_checkpoints(module);
  spillway::define_lifetimes(module);
  spillway::define_run_log(module);
  spillway::define_microbatches(module);
  spillway::define_model_state(module);
  spillway::define_planning(module);
  spillway::define_recomputable(module);
  spillway::define_scopes(module);
  spillway::define_tags(module);
  spillway::bind_pause(module);
}
