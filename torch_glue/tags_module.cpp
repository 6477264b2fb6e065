// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/modules.h"
#include "torch_glue/tags/backward_tags.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

std::uint32_t number(TagId tag) {
  return static_cast<std::uint32_t>(tag);
}

constexpr const char* kCallersScope = "spillway.scope";

/// One object per scope, always the same, so that an autograd thread can distinguish scopes by
/// their objects' addresses without Python's lock.
class ScopeObjects {
 public:
  static ScopeObjects& instance() {
    static auto* const objects = new ScopeObjects;
    return *objects;
  }

  /// Requires: Python's lock.
  PyObject* of(TagId scope) {
    const Lock lock(mutex_);
    PyObject*& object = by_scope_[scope];
    if (object == nullptr) {
      object = PyList_New(0);  // never freed, and distinct from all others
      scopes_[object] = scope;
    }
    return object;
  }

  TagId scope(PyObject* object) {
    const Lock lock(mutex_);
    const auto found = scopes_.find(object);
    return found == scopes_.end() ? TagId::kUntagged : found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<TagId, PyObject*> by_scope_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<PyObject*, TagId> scopes_ SPILLWAY_GUARDED_BY(mutex_);
};

/// PyTorch copies its "Python objects of a thread" to the threads that run a backward pass.
TagId callers_scope() {
  using at::impl::ThreadLocalPythonObjects;
  if (!ThreadLocalPythonObjects::contains(kCallersScope)) return TagId::kUntagged;
  return ScopeObjects::instance().scope(
      ThreadLocalPythonObjects::get(kCallersScope)->ptr(getPyInterpreter()));
}

/// Called when this thread's scope has changed.
void scope_changed() {
  PyObject* const object = ScopeObjects::instance().of(current_scope());
  at::impl::ThreadLocalPythonObjects::set(
      kCallersScope, std::make_shared<c10::SafePyObject>(Py_NewRef(object), getPyInterpreter()));
  note_tag();
}

std::uint32_t set_role(std::uint32_t role) {
  const TagId before = exchange_role(TagId{role});
  note_tag();
  return number(before);
}

bool fed(const at::Tensor& tensor, bool outermost) {
  static const TagId bare = intern_tag("activation");
  if (tensor.grad_fn()) return false;
  const TagId tag = tag_of(tensor);
  return tag == TagId::kUntagged || (outermost && tag == bare);
}

/// Called at a module's call: memory is for `role` from now on, and untagged tensors are its input.
std::uint32_t enter_module(std::uint32_t role, const py::tuple& arguments, bool outermost) {
  static const TagId input = intern_tag("input");
  for (const py::handle argument : arguments) {
    if (!THPVariable_Check(argument.ptr())) continue;
    const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
    if (tensor.is_cuda() && fed(tensor, outermost)) set_tensor_role(tensor, input);
  }
  return set_role(role);
}

void set_roles(const py::iterable& tensors, std::uint32_t role) {
  for (const py::handle tensor : tensors) {
    if (THPVariable_Check(tensor.ptr()))
      set_tensor_role(THPVariable_Unpack(tensor.ptr()), TagId{role});
  }
}

py::dict accounting_of(const HeapTagInfo& tag) {
  return py::dict("allocated_bytes"_a = tag.allocated.count(),
                  "requested_bytes"_a = tag.requested.count(),
                  "evicted_bytes"_a = tag.evicted.count(),
                  "allocated_peak_bytes"_a = tag.allocated_peak.count(),
                  "blocks"_a = tag.blocks);
}

py::dict tags_of(int device) {
  py::dict tags;
  if (DeviceRuntime* const runtime = Runtime::instance().devices().if_made(DeviceId{device})) {
    for (const HeapTagInfo& tag : runtime->heap().view().tags())
      tags[py::str(shown_tag(tag.tag))] = accounting_of(tag);
  }
  return tags;
}

/// Free bytes by pool and stream: the allocator's cached memory without owner.
py::list cached_of(int device) {
  py::list all;
  DeviceRuntime* const runtime = Runtime::instance().devices().if_made(DeviceId{device});
  if (runtime == nullptr) return all;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Bytes> free;
  for (const HeapSegmentInfo& segment : runtime->heap().view().segments()) {
    Bytes& bytes = free[{static_cast<std::uint64_t>(segment.pool),
                         reinterpret_cast<std::uint64_t>(segment.stream)}];
    for (const HeapBlockInfo& block : segment.blocks)
      if (!block.allocated) bytes += block.size;
  }
  for (const auto& [key, bytes] : free)
    all.append(py::make_tuple(key.first, key.second, bytes.count()));
  return all;
}

}  // namespace

void define_tags(py::module_& module) {
  module.def("push_tag", [](const std::string& name) {
    follow_scopes_into_backward();
    ask_for_callers_scope(callers_scope);
    raise(push_tag(name).status());
    scope_changed();
  });
  module.def("pop_tag", [] {
    const bool popped = pop_tag();
    scope_changed();
    return popped;
  });
  module.def("current_tag", [] { return shown_tag(current_tag()); });
  module.def("tag_of", [](const py::handle& tensor) {
    if (!THPVariable_Check(tensor.ptr())) {
      throw py::type_error("expected a torch.Tensor, not " +
                           py::repr(py::type::of(tensor)).cast<std::string>());
    }
    return shown_tag(tag_of(THPVariable_Unpack(tensor.ptr())));
  });
  module.def("tag_matches", &tag_matches, "pattern"_a, "path"_a);
  module.def("intern_tag", [](const std::string& name) { return number(intern_tag(name)); });
  module.def("set_role", &set_role, "role"_a);
  module.def("enter_module", &enter_module, "role"_a, "arguments"_a, "outermost"_a);
  module.def("set_roles", &set_roles, "tensors"_a, "role"_a);
  module.def("set_workspace_roles", &set_workspace_roles);
  module.def("roles_in_backward", [](bool on) {
    if (on) follow_scopes_into_backward();
    set_roles_in_backward(on);
  });
  module.def("memory_by_tag", &tags_of, "device"_a);
  module.def("cached_memory", &cached_of, "device"_a);
}

}  // namespace spillway
