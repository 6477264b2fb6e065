// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"
#include "torch_glue/modules.h"
#include "torch_glue/saved_tensors/operand_notes.h"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;

/// By the name that statistics have.
ModelClass class_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(ModelClass::kCount); ++i)
    if (name == model_class_name(static_cast<ModelClass>(i))) return static_cast<ModelClass>(i);
  throw py::value_error(name + ": is no class of model state");
}

/// Makes the tensor's storage resident until the step ends: its address is about to be used.
void keep_in_step(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  ManagedStorage* const managed = ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
  if (managed == nullptr) return;
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  managed->keep_in_step(ManagedStorages::instance().step());
}

/// Makes the tensor's storage resident for good: something outside of PyTorch has its address.
void keep_resident(const at::Tensor& tensor) {
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  pinned.keep();
}

/// Likewise, with the gradients and states that belong to it, because the program asks for it.
/// Returns whether it is managed.
bool keep_on_device(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return false;
  ManagedStorage* const managed = ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
  if (managed == nullptr) return false;
  managed->keep_owned();
  keep_resident(tensor);
  return true;
}

bool manages(const at::Tensor& tensor) {
  return tensor.has_storage() &&
         ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl()) != nullptr;
}

/// Begins to fetch those that are managed, on the current streams: other streams wait at their use.
void fetch_tensors(const std::vector<at::Tensor>& tensors) {
  PinnedStorages pinned;
  for (const at::Tensor& tensor : tensors)
    pinned.add(tensor, /*writes=*/false);
}

/// Offloads those that are managed and can be. Returns their bytes.
std::uint64_t offload_tensors(const std::vector<at::Tensor>& tensors) {
  Bytes freed;
  for (const at::Tensor& tensor : tensors)
    if (manages(tensor)) {
      ManagedStorage& managed = *ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
      freed += managed.shared_from_this()->offload();
    }
  return freed.count();
}

/// Within which model state stays: a budget or its text. Without one, none is held from now on.
void hold_budget(const std::variant<std::monostate, Budget, std::string>& given) {
  Budget budget;
  if (const auto* const text = std::get_if<std::string>(&given)) {
    const auto read = Budget::of(*text, "budget");
    raise(read.status());
    budget = read.value();
  } else if (const auto* const made = std::get_if<Budget>(&given)) {
    budget = *made;
  }
  raise(Runtime::instance().devices().hold_budget(budget));
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
  module.def("manage_model_state",
             [](std::uint64_t min_bytes) { ManagedStorages::instance().start(Bytes{min_bytes}); });
  module.def("hold_budget", &hold_budget, py::arg("budget").none(true));
  module.def("manage",
             [](const at::Tensor& tensor,
                const std::string& of,
                const std::optional<at::Tensor>& owner,
                int slot) {
               return static_cast<int>(ManagedStorages::instance().manage(
                   tensor, class_named(of), owner.value_or(at::Tensor()), slot));
             });
  module.def("managed_step_ended", [] { ManagedStorages::instance().end_step(); });
  // Within which model state leaves the device; 0 if it does not.
  module.def("job_budget", [](int device) {
    const DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    const bool holds = made != nullptr && !ManagedStorages::instance().keeps_all();
    return holds ? made->job_budget().count() : 0;
  });
  module.def("slice_bytes", [](int device) {
    const DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    return slice_bytes(made == nullptr ? Bytes{} : made->job_budget()).count();
  });
  module.def("offload_model_state", [] {
    const py::gil_scoped_release without_lock;
    return ManagedStorages::instance().offload_all().count();
  });
  // What may fetch releases the interpreter's lock: the thread that fetches a storage may need it.
  using WithoutLock = py::call_guard<py::gil_scoped_release>;
  module.def("fetch_tensors", &fetch_tensors, WithoutLock());
  module.def("offload_tensors", &offload_tensors, WithoutLock());
  module.def("keep_in_step", &keep_in_step, WithoutLock());
  module.def("keep_resident", &keep_resident, WithoutLock());
  module.def("keep_on_device", &keep_on_device, WithoutLock());
  module.def("manages", &manages);
  module.def("keep_model_state", [] { ManagedStorages::instance().keep_all(); });
  module.def("is_managed", &is_managed);
  // Keys that tensors or threads have, as numbers. Operators of higher order have to fall through
  // them.
  module.def("dispatch_keys", [] {
    return std::vector<int>{static_cast<int>(compat::kGuardKey), static_cast<int>(kNotingKey)};
  });
  py::class_<ResidentStorages>(module, "ResidentStorages")
      .def(py::init<const std::vector<c10::Storage>&>(), WithoutLock())
      .def("release", &ResidentStorages::release);
  module.def("set_chaos", [](std::uint64_t seed, unsigned one_in) {
    constexpr Bytes kSlice{32ULL << 10U};  // small models have several
    set_slice_bytes(one_in != 0 ? kSlice : Bytes{});
    ManagedStorages::instance().set_chaos(seed, one_in);
  });
}

}  // namespace spillway
