// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/microbatches/microbatches.h"
#include "torch_glue/modules.h"

#include <memory>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

std::uint64_t enter_step(Microbatches& microbatches) {
  const auto id = microbatches.enter();
  raise(id.status());
  return id.value();
}

py::dict microbatch_stats(const Microbatches& microbatches) {
  const auto now = microbatches.stats();
  return py::dict("units"_a = now.units,
                  "units_kept"_a = now.units_kept,
                  "ahead"_a = now.ahead,
                  "batches"_a = now.batches,
                  "straight_batches"_a = now.straight_batches,
                  "largest_unit_bytes"_a = now.largest_unit.count());
}

}  // namespace

void define_microbatches(py::module_& module) {
  py::class_<Microbatches, std::shared_ptr<Microbatches>>(module, "Microbatches")
      .def(py::init([](std::size_t horizon) {
             return std::make_shared<Microbatches>(intern_tag("microbatches"), horizon);
           }),
           py::arg("horizon"))
      .def("begin_step", &Microbatches::begin_step)
      .def("end_step", &Microbatches::end_step)
      .def_property_readonly("in_step", &Microbatches::in_step)
      .def("enter", &enter_step)
      .def("set_horizon", &Microbatches::set_horizon, py::arg("horizon"))
      .def("stats", &microbatch_stats);
}

}  // namespace spillway
