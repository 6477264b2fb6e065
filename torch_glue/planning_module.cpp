// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/plan_curve.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/modules.h"
#include "torch_glue/saved_storage/budget.h"

#include <pybind11/stl.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>

namespace spillway {
namespace {

namespace py = pybind11;

const char* name_of(StepBound::Limit limit) {
  switch (limit) {
    case StepBound::Limit::kRecompute:
      return "recompute";
    case StepBound::Limit::kLinkOut:
      return "link out";
    case StepBound::Limit::kLinkIn:
      return "link in";
    case StepBound::Limit::kCompute:
      break;
  }
  return "compute";
}

/// Budgets of the profile are the step's minus `more`, the bytes by which it began above the
/// profile, and those that its plan leaves to model state.
py::dict as_dict(const PlanPoint& point, std::uint64_t more) {
  py::dict dict;
  dict["budget"] = point.budget.count() + more;
  dict["peak"] = point.peak.count() + more;
  dict["kept"] = point.kept;
  dict["offloaded"] = point.offloaded;
  dict["recomputed"] = point.recomputed;
  dict["seconds"] = point.timing.total();
  dict["compute"] = point.timing.compute;
  dict["recompute"] = point.timing.recompute;
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
  std::uint64_t more = 0;  // wraps, and wraps back
  {
    const py::gil_scoped_release released;
    step = Runtime::instance().plans().planned_step(intern_tag(tag), DeviceId{device});
    if (step) {
      chosen = point_of(step->profile, step->plan, step->budget);
      more = step->allocated.count() + step->beside.count() - step->profile.memory.begin.count();
      curve = plan_curve(step->profile, points, [&](Bytes allocated) {
        const Bytes budget = step->foreseen.budget_for(Bytes{allocated.count() + more},
                                                       step->profile.candidates.size());
        return Bytes{budget.count() - more};
      });
    }
  }
  if (!step) return py::none();
  const StepProfile& profile = step->profile;
  py::dict dict;
  dict["chosen"] = as_dict(*chosen, more);
  py::list all;
  for (const PlanPoint& point : curve)
    all.append(as_dict(point, more));
  dict["curve"] = all;
  dict["storages"] = profile.candidates.size();
  dict["out"] = profile.link.out;
  dict["in"] = profile.link.in;
  dict["per_copy"] = profile.link.per_copy;
  dict["taken"] = step->seconds;
  return dict;
}

// --- Recorded steps, as plain lists for a file
// -----------------------------------------------------

template <typename Number>
std::vector<std::uint64_t> counts(const std::vector<Number>& all) {
  std::vector<std::uint64_t> counts;
  for (const Number& each : all)
    counts.push_back(each.count());
  return counts;
}

py::object as_dict(const std::optional<StepTimes>& times) {
  if (!times) return py::none();
  py::dict dict;
  py::list marks;
  for (const StepTimes::Mark& mark : times->marks) {
    const bool known = mark.storage != StepTimes::kNoStorage;
    marks.append(py::make_tuple(
        mark.event, mark.seconds, known ? std::optional(mark.storage) : std::nullopt, mark.used));
  }
  dict["marks"] = marks;
  dict["end"] = times->end;
  dict["recompute"] = times->recompute;
  dict["link"] = py::make_tuple(times->link.out, times->link.in, times->link.per_copy);
  return dict;
}

py::dict as_dict(const KnownStep& step) {
  py::dict dict;
  dict["sizes"] = counts(step.sizes);
  dict["recomputable"] = step.recomputable;
  dict["begin"] = step.recorded.begin.count();
  dict["peaks"] = step.recorded.peaks;
  dict["edges"] = step.recorded.edges;
  py::list absences;
  for (const RecordedStep::Absence& offloaded : step.recorded.absences)
    absences.append(
        py::make_tuple(offloaded.storage, offloaded.from, offloaded.to, offloaded.bytes));
  dict["absences"] = absences;
  py::list operands;
  for (const Operand& operand : step.recorded.operands) {
    py::list products;
    for (const Operand::Product& product : operand.products) {
      const bool always = product.within == Operand::kAlways;
      products.append(
          py::make_tuple(product.storage, always ? std::nullopt : std::optional(product.within)));
    }
    operands.append(
        py::make_tuple(operand.storage, operand.from, operand.to, operand.bytes, products));
  }
  dict["operands"] = operands;
  dict["besides"] = step.recorded.besides;
  dict["operands_only"] = step.recorded.operands_only;
  dict["times"] = as_dict(step.times);
  return dict;
}

StepTimes times_of(const py::dict& dict) {
  StepTimes times;
  using Mark = std::tuple<std::size_t, double, std::optional<std::size_t>, bool>;
  for (const auto& [event, seconds, storage, used] : dict["marks"].cast<std::vector<Mark>>())
    times.marks.push_back({event, seconds, storage.value_or(StepTimes::kNoStorage), used});
  times.end = dict["end"].cast<double>();
  times.recompute = dict["recompute"].cast<std::vector<double>>();
  const auto link = dict["link"].cast<std::array<double, 3>>();
  times.link = {link[0], link[1], link[2]};
  return times;
}

KnownStep known_step_of(const py::dict& dict) {
  KnownStep step;
  for (const std::uint64_t size : dict["sizes"].cast<std::vector<std::uint64_t>>())
    step.sizes.emplace_back(size);
  step.recomputable = dict["recomputable"].cast<std::vector<bool>>();
  step.recorded.storages = step.sizes.size();
  step.recorded.begin = Bytes{dict["begin"].cast<std::uint64_t>()};
  step.recorded.peaks = dict["peaks"].cast<std::vector<std::uint64_t>>();
  step.recorded.edges = dict["edges"].cast<std::vector<std::size_t>>();
  using Away = std::tuple<std::size_t, std::size_t, std::size_t, std::uint64_t>;
  for (const auto& [storage, from, to, bytes] : dict["absences"].cast<std::vector<Away>>())
    step.recorded.absences.push_back({storage, from, to, bytes});
  using Product = std::tuple<std::size_t, std::optional<std::size_t>>;
  using Row =
      std::tuple<std::size_t, std::size_t, std::size_t, std::uint64_t, std::vector<Product>>;
  for (const auto& [storage, from, to, bytes, products] :
       dict["operands"].cast<std::vector<Row>>()) {
    Operand& operand = step.recorded.operands.emplace_back(Operand{storage, from, to, bytes});
    for (const auto& [product, within] : products)
      operand.products.push_back({product, within.value_or(Operand::kAlways)});
  }
  step.recorded.besides = dict["besides"].cast<std::vector<std::uint64_t>>();
  if (dict.contains("operands_only")) {  // files of earlier versions have none
    step.recorded.operands_only = dict["operands_only"].cast<std::vector<std::size_t>>();
  }
  if (!dict["times"].is_none()) step.times = times_of(dict["times"].cast<py::dict>());
  return step;
}

py::list known_steps(const std::string& tag, int device) {
  py::list steps;
  for (const KnownStep& step :
       Runtime::instance().plans().known_steps(intern_tag(tag), DeviceId{device}))
    steps.append(as_dict(step));
  return steps;
}

void learn_steps(const std::string& tag, int device, const std::vector<py::dict>& dicts) {
  std::vector<KnownStep> steps;
  for (const py::dict& dict : dicts)
    steps.push_back(known_step_of(dict));
  const auto on = Runtime::instance().device(DeviceId{device});
  raise(on.status());
  learn_room(*on.value());
  raise(
      Runtime::instance().plans().learn_steps(intern_tag(tag), DeviceId{device}, std::move(steps)));
}

}  // namespace

void define_planning(py::module_& module) {
  py::class_<Budget>(module, "Budget")
      .def(py::init([](std::uint64_t bytes, double share, bool rest, double slowdown, bool warns) {
             return Budget{Bytes{bytes}, share, rest, slowdown, warns};
           }),
           py::arg("bytes") = 0,
           py::arg("share") = 0.0,
           py::arg("rest") = false,
           py::arg("slowdown") = 0.0,
           py::arg("warns") = false)
      .def_property_readonly_static("AUTO", [](const py::object&) { return Budget::kAuto; });
  module.def("explain", &explain, py::arg("tag"), py::arg("device"), py::arg("points"));
  module.def("records", [](const std::string& tag) {
    return Runtime::instance().plans().records(intern_tag(tag));
  });
  module.def("known_steps", &known_steps, py::arg("tag"), py::arg("device"));
  module.def("learn_steps", &learn_steps, py::arg("tag"), py::arg("device"), py::arg("steps"));
}

}  // namespace spillway
