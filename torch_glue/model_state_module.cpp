// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/side_stream.h"
#include "torch_glue/model_state/budget_excess.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"
#include "torch_glue/model_state/overlapped_step.h"
#include "torch_glue/modules.h"
#include "torch_glue/saved_tensors/operand_notes.h"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

/// By the name that statistics have.
ModelClass class_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(ModelClass::kCount); ++i)
    if (name == model_class_name(static_cast<ModelClass>(i))) return static_cast<ModelClass>(i);
  throw py::value_error(name + ": is no class of model state");
}

/// Keeps the arguments of a kernel resident while it is launched. Threads: confined.
class KernelLaunch {
 public:
  /// `writes`: of each argument, whether the kernel may change it.
  KernelLaunch(const std::vector<at::Tensor>& arguments, const std::vector<bool>& writes)
      : pinned_(std::in_place) {
    if (arguments.size() != writes.size()) throw py::value_error("a flag is needed per argument");
    for (std::size_t i = 0; i < arguments.size(); ++i)
      pinned_->add(arguments[i], writes[i]);
    pinned_->copy_ahead();
    ++open;
  }

  ~KernelLaunch() { end(); }

  KernelLaunch(const KernelLaunch&) = delete;
  KernelLaunch& operator=(const KernelLaunch&) = delete;

  void end() {
    if (std::exchange(ended_, true)) return;
    --open;
    pinned_.reset();
  }

  /// Whether this thread is launching a kernel: the addresses that it takes are for that kernel.
  static bool in_progress() { return open != 0; }

 private:
  static inline thread_local int open = 0;
  std::optional<PinnedStorages> pinned_;
  bool ended_ = false;
};

/// The positions of the tensors in model state.
std::vector<std::size_t> managed_among(const py::tuple& arguments) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    PyObject* const each = py::object(arguments[i]).ptr();
    if (THPVariable_Check(each) && ManagedStorage::of(THPVariable_Unpack(each)) != nullptr)
      found.push_back(i);
  }
  return found;
}

/// Makes the tensor's storage resident until the step ends: its address is about to be used.
void keep_in_step(const at::Tensor& tensor) {
  join_side_stream(tensor);
  ManagedStorage* const managed = ManagedStorage::of(tensor);
  if (managed == nullptr || KernelLaunch::in_progress()) return;
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  managed->keep_in_step(ManagedStorages::instance().step());
}

/// Makes the tensor's storage resident for good: something outside of PyTorch has its address.
void keep_resident(const at::Tensor& tensor, ResidentReason why) {
  join_side_stream(tensor);
  PinnedStorages pinned;
  pinned.add(tensor, /*writes=*/true);
  pinned.keep(why);
}

/// For statistics: a process group exists, so the tensor's storage is not managed.
void stays_in_process_group(const at::Tensor& tensor) {
  if (tensor.is_cuda() && tensor.has_storage())
    ManagedStorages::instance().stays(tensor.storage(), ResidentReason::kProcessGroup);
}

void set_managed_name(const at::Tensor& tensor, const std::string& name) {
  const ManagedStorage* const managed = ManagedStorage::of(tensor);
  if (managed != nullptr) ManagedStorages::instance().names().set(managed->id(), name);
}

py::dict by_class(const ManagedStorages::ByClass& bytes) {
  py::dict found;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    found[model_class_name(static_cast<ModelClass>(i))] = bytes.at(i).count();
  return found;
}

py::object excess_of(int device) {
  const auto excess = largest_budget_excess(DeviceId{device});
  if (!excess) return py::none();
  py::list arguments;
  for (const BudgetExcess::Argument& each : excess->arguments) {
    arguments.append(py::dict("shape"_a = each.sizes,
                              "type"_a = each.type,
                              "bytes"_a = each.bytes.count(),
                              "of"_a = each.of,
                              "name"_a = each.name));
  }
  return py::dict("operator"_a = excess->op,
                  "allocated"_a = excess->allocated.count(),
                  "needed"_a = excess->needed.count(),
                  "arguments"_a = arguments,
                  "resident"_a = by_class(excess->resident));
}

py::object host_shortage() {
  const auto shortage = ManagedStorages::instance().take_host_shortage();
  if (!shortage) return py::none();
  return py::dict("why"_a = shortage->why, "model_state"_a = by_class(shortage->model_state));
}

/// `function`: the address of a function that gets the address of each fetched storage and the
/// number of its class in `roles`.
void report_fetches(std::uintptr_t function, const std::vector<int>& roles) {
  using Report = void (*)(const void*, int);
  static std::atomic<Report> report{nullptr};
  static std::array<int, static_cast<std::size_t>(ModelClass::kCount)> role_of{};
  std::copy_n(roles.begin(), std::min(roles.size(), role_of.size()), role_of.begin());
  report = reinterpret_cast<Report>(function);
  ManagedStorages::instance().fetches().set_observer([](const void* at, ModelClass of) {
    report.load()(at, role_of.at(static_cast<std::size_t>(of)));
  });
}

/// Likewise, with the gradients and states that belong to it, because the program asks for it.
/// Returns whether it is managed.
bool keep_on_device(const at::Tensor& tensor) {
  ManagedStorage* const managed = ManagedStorage::of(tensor);
  if (managed == nullptr) return false;
  managed->keep_owned();
  keep_resident(tensor, ResidentReason::kKept);
  return true;
}

bool manages(const at::Tensor& tensor) {
  return ManagedStorage::of(tensor) != nullptr;
}

/// Whether all tensors among these objects are managed, as far as they are on a device, are
/// strided, and are not smaller than `min_bytes`.
bool manages_all(const py::list& objects, std::uint64_t min_bytes) {
  return std::all_of(objects.begin(), objects.end(), [&](const py::handle each) {
    if (!THPVariable_Check(each.ptr())) return true;
    const at::Tensor& tensor = THPVariable_Unpack(each.ptr());
    return !tensor.is_cuda() || tensor.layout() != at::kStrided || !tensor.has_storage() ||
           tensor.storage().nbytes() < min_bytes || manages(tensor);
  });
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
    if (ManagedStorage* const managed = ManagedStorage::of(tensor))
      freed += managed->shared_from_this()->offload();
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

/// The bytes of an offloaded storage in a tensor of the CPU; none if it is resident.
std::optional<at::Tensor> read_offloaded(const c10::Storage& storage) {
  ManagedStorage* const managed = ManagedStorage::of(*storage.unsafeGetStorageImpl());
  if (managed == nullptr || managed->on_device()) return std::nullopt;
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(storage.nbytes())}, at::kByte);
  if (!managed->shared_from_this()->read_offloaded(
          static_cast<std::byte*>(bytes.mutable_data_ptr())))
    return std::nullopt;
  return bytes;
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

bool is_offloaded(const c10::Storage& storage) {
  const ManagedStorage* const managed = ManagedStorage::of(*storage.unsafeGetStorageImpl());
  return managed != nullptr && !managed->on_device();
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
  module.def("copy_model_state_early", [] { ManagedStorages::instance().copy_early(); });
  module.def("managed_step_ended", [] { ManagedStorages::instance().end_step(); });
  // Within which model state leaves the device; 0 if it does not.
  module.def("job_budget", [](int device) {
    const DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    const bool holds = made != nullptr && !ManagedStorages::instance().keeps_all();
    return holds ? made->budget().of_job().count() : 0;
  });
  module.def("slice_bytes", [](int device) {
    const DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    return slice_bytes(made == nullptr ? Bytes{} : made->budget().of_job()).count();
  });
  module.def("offload_model_state", [] {
    const py::gil_scoped_release without_lock;
    return ManagedStorages::instance().offload_all().count();
  });
  // What may fetch releases the interpreter's lock: the thread that fetches a storage may need it.
  using WithoutLock = py::call_guard<py::gil_scoped_release>;
  module.def("read_offloaded", &read_offloaded, WithoutLock());
  module.def("fetch_tensors", &fetch_tensors, WithoutLock());
  module.def("offload_tensors", &offload_tensors, WithoutLock());
  module.def("overlaps_step", [](int device) {
    DeviceRuntime* const made = Runtime::instance().devices().if_made(DeviceId{device});
    return made != nullptr && ManagedStorages::instance().overlaps_step(*made);
  });
  module.def("begin_overlapped", &begin_overlapped, WithoutLock());
  module.def(
      "join_overlapped", py::overload_cast<const c10::Storage&>(&join_side_stream), WithoutLock());
  module.def("join_overlapped_step",
             [](int device) { SideStream::join(current_stream(DeviceId{device})); });
  module.def("end_overlapped", &end_overlapped, WithoutLock());
  module.def("keep_in_step", &keep_in_step, WithoutLock());
  module.def(
      "keep_resident",
      [](const at::Tensor& tensor) { keep_resident(tensor, ResidentReason::kAddress); },
      WithoutLock());
  // Names are reported for the parameter, its gradient and its states.
  module.def("set_managed_name", &set_managed_name);
  module.def("stays_in_process_group", &stays_in_process_group);
  module.def("largest_budget_excess", &excess_of);
  module.def("take_host_shortage", &host_shortage);
  module.def("report_fetches", &report_fetches);
  module.def("keep_on_device", &keep_on_device, WithoutLock());
  module.def("manages", &manages);
  module.def("manages_all", &manages_all);
  module.def("keep_model_state", [] { ManagedStorages::instance().keep_all(); });
  module.def("is_managed", &is_managed);
  module.def("is_offloaded", &is_offloaded);
  // Keys that tensors or threads have, as numbers. Operators of higher order have to fall through
  // them.
  module.def("dispatch_keys", [] {
    std::vector<int> keys{static_cast<int>(kNotingKey)};
    for (const c10::DispatchKey key : guard_keys())
      keys.push_back(static_cast<int>(key));
    return keys;
  });
  py::class_<ResidentStorages>(module, "ResidentStorages")
      .def(py::init<const std::vector<c10::Storage>&>(), WithoutLock())
      .def("release", &ResidentStorages::release);
  py::class_<KernelLaunch>(module, "KernelLaunch")
      .def(py::init<const std::vector<at::Tensor>&, const std::vector<bool>&>(), WithoutLock())
      .def("end", &KernelLaunch::end);
  module.def("managed_among", &managed_among);
  module.def("set_chaos", [](std::uint64_t seed, unsigned one_in) {
    constexpr Bytes kSlice{32ULL << 10U};  // small models have several
    set_slice_bytes(one_in != 0 ? kSlice : Bytes{});
    ManagedStorages::instance().set_chaos(seed, one_in);
  });
}

}  // namespace spillway
