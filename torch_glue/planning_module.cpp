// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/planning_module.h"

#include "allocator/plan/plan_curve.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>

namespace spillway {
namespace {

namespace py = pybind11;

const char* name_of(StepBound::Limit limit) {
  switch (limit) {
    case StepBound::Limit::kRebuild:
      return "rebuild";
    case StepBound::Limit::kLinkOut:
      return "link out";
    case StepBound::Limit::kLinkIn:
      return "link in";
    case StepBound::Limit::kCompute:
      break;
  }
  return "compute";
}

/// Budgets of the profile are the step's less `more`, what it began with beyond the profile's.
py::dict as_dict(const PlanPoint& point, std::uint64_t more) {
  py::dict dict;
  dict["budget"] = point.budget.count() + more;
  dict["peak"] = point.peak.count() + more;
  dict["kept"] = point.kept;
  dict["moved"] = point.moved;
  dict["rebuilt"] = point.rebuilt;
  dict["seconds"] = point.timing.total();
  dict["compute"] = point.timing.compute;
  dict["rebuild"] = point.timing.rebuild;
  dict["stall_out"] = point.timing.stall_out;
  dict["stall_in"] = point.timing.stall_in;
  dict["bound"] = point.bound.seconds;
  dict["limit"] = name_of(point.bound.limit);
  return dict;
}

py::object explain(const std::string& tag, int device, std::size_t points) {
  std::optional<PlannedStep> step;
  std::vector<PlanPoint> curve;
  std::optional<PlanPoint> chosen;
  {
    const py::gil_scoped_release released;
    step = Runtime::instance().planned_step(intern_tag(tag), DeviceId{device});
    if (step) {
      chosen = plan_point(step->profile, step->budget);
      curve = plan_curve(step->profile, points);
    }
  }
  if (!step) return py::none();
  const std::uint64_t begun = step->profile.memory.begin.count();
  const std::uint64_t more = step->live.count() - begun;  // wraps, and back
  py::dict dict;
  dict["chosen"] = as_dict(*chosen, more);
  py::list all;
  for (const PlanPoint& point : curve)
    all.append(as_dict(point, more));
  dict["curve"] = all;
  dict["storages"] = step->profile.storages.size();
  dict["out"] = step->profile.link.out;
  dict["in"] = step->profile.link.in;
  dict["per_copy"] = step->profile.link.per_copy;
  double forward = 0;
  for (std::size_t place = 0; place < step->profile.turn; ++place)
    forward += step->profile.seconds[place];
  dict["forward"] = forward;
  return dict;
}

}  // namespace

void define_planning(py::module_& module) {
  module.def("explain", &explain, py::arg("tag"), py::arg("device"), py::arg("points"));
}

}  // namespace spillway
