// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/modules.h"
#include "torch_glue/shards/shard.h"
#include "torch_glue/shards/shards.h"

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

/// For each part its tensors, and whether each is a buffer.
using Members = std::vector<std::vector<std::pair<at::Tensor, bool>>>;

std::shared_ptr<OffloadedShards> create_shards(const Members& members,
                                               c10::DeviceIndex device,
                                               std::size_t slots,
                                               const std::string& directory) {
  std::vector<std::vector<Shard::Member>> all;
  for (const auto& part : members) {
    auto& list = all.emplace_back();
    for (const auto& [tensor, buffer] : part)
      list.push_back({tensor, buffer});
  }
  return OffloadedShards::create(all, c10::Device(c10::kCUDA, device), slots, directory);
}

py::dict shard_stats(const OffloadedShards& shards) {
  const auto now = [&] {
    const py::gil_scoped_release others_may_run;
    return shards.stats();
  }();
  return py::dict("loaded_bytes"_a = now.loaded.count(),
                  "gradient_bytes"_a = now.gradients.count(),
                  "slot_bytes"_a = now.slots.count(),
                  "extra_slots"_a = now.extra_slots);
}

}  // namespace

void define_shards(py::module_& module) {
  module.def("split_by_bytes", &split_by_bytes, "sizes"_a, "parts"_a);
  py::class_<OffloadedShards, std::shared_ptr<OffloadedShards>>(module, "Shards")
      .def(py::init(&create_shards),
           py::arg("members"),
           py::arg("device"),
           py::arg("slots"),
           py::arg("directory"))
      .def("begin", &OffloadedShards::begin)
      .def("run",
           [](OffloadedShards& self, std::size_t part, const py::function& function) {
             py::object result;
             const py::gil_scoped_release others_may_run;  // while a file is read
             self.run(part, [&] {
               const py::gil_scoped_acquire ours;
               result = function();
             });
             return result;
           })
      .def("wait_for_copies",
           &OffloadedShards::wait_for_copies,
           py::call_guard<py::gil_scoped_release>())
      .def("stats", &shard_stats);
}

}  // namespace spillway
