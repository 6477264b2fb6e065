// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"
#include "torch_glue/modules.h"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;

/// Makes the tensor's storage resident until the step ends: its address is about to be used.
void keep_in_step(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  ManagedStorage* const managed = ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
  if (managed == nullptr) return;
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  managed->keep_in_step(ManagedStorages::instance().step());
}

/// Makes the tensor's storage resident from now on: its address has been given away.
void keep(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  ManagedStorage* const managed = ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
  if (managed == nullptr) return;
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  managed->keep();
}

/// Keeps storages resident until release().
class ResidentStorages {
 public:
  explicit ResidentStorages(const std::vector<c10::Storage>& storages) : pinned_(std::in_place) {
    for (const c10::Storage& storage : storages)
      pinned_->add(*storage.unsafeGetStorageImpl(), /*writes=*/true);
  }

  void release() { pinned_.reset(); }

 private:
  std::optional<PinnedStorages> pinned_;
};

bool is_managed(const c10::Storage& storage) {
  return ManagedStorage::of(*storage.unsafeGetStorageImpl()) != nullptr;
}

}  // namespace

void define_model_state(py::module_& module) {
  py::enum_<ModelClass>(module, "ModelClass")
      .value("PARAMETER", ModelClass::kParameter)
      .value("BUFFER", ModelClass::kBuffer)
      .value("GRADIENT", ModelClass::kGradient)
      .value("OPTIMIZER_STATE", ModelClass::kOptimizerState);
  module.def("manage_model_state", [](const std::string& budget, std::uint64_t min_bytes) {
    const auto read = Budget::of(budget, "budget");
    raise(read.status());
    raise(Runtime::instance().devices().hold_budget(read.value()));
    ManagedStorages::instance().start(Bytes{min_bytes});
  });
  module.def("manage",
             [](const at::Tensor& tensor,
                ModelClass of,
                const std::optional<at::Tensor>& owner,
                int slot) {
               return static_cast<int>(ManagedStorages::instance().manage(
                   tensor, of, owner.value_or(at::Tensor()), slot));
             });
  module.def("managed_step_ended", [] { ManagedStorages::instance().end_step(); });
  module.def("manages_model_state", [] { return ManagedStorages::instance().on(); });
  module.def("offload_model_state",
             [] { return ManagedStorages::instance().offload_all().count(); });
  module.def("slice_bytes", [](int device) {
    const DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    return slice_bytes(made == nullptr ? Bytes{} : made->held_budget()).count();
  });
  module.def("keep_in_step", &keep_in_step);
  module.def("keep_resident", &keep);
  module.def("is_managed", &is_managed);
  module.def("set_guarded", &set_guarded);
  py::class_<ResidentStorages>(module, "ResidentStorages")
      .def(py::init<const std::vector<c10::Storage>&>())
      .def("release", &ResidentStorages::release);
  module.def("set_chaos", [](std::uint64_t seed, unsigned one_in) {
    ManagedStorages::instance().set_chaos(seed, one_in);
  });
}

}  // namespace spillway
