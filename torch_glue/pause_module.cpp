// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/pool_scope.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/modules.h"

#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

namespace py = pybind11;

py::dict dict_of(const PauseResult& result) {
  py::dict dict;
  dict["blocks"] = result.blocks;
  dict["bytes"] = result.bytes.count();
  dict["copied_bytes"] = result.copied.count();
  dict["released_bytes"] = result.released.count();
  return dict;
}

/// Runs `operation` without Python's lock: it waits for the device.
template <typename Operation>
py::dict without_lock(Operation operation) {
  const auto result = [&] {
    const py::gil_scoped_release released;
    return operation();
  }();
  raise(result.status());
  return dict_of(result.value());
}

/// A tag, verbatim, and a pool on this thread; must end on the thread that created it.
class TagPoolScope {
 public:
  TagPoolScope(const std::string& tag, std::uint64_t pool) {
    if (!tag.empty()) raise(check_tag_name(tag));
    tag_ = std::make_unique<TagScope>(intern_tag(tag));
    pool_ = std::make_unique<PoolScope>(PoolId{pool});
  }

  void end() {
    pool_.reset();
    tag_.reset();
  }

 private:
  std::unique_ptr<TagScope> tag_;
  std::unique_ptr<PoolScope> pool_;
};

/// The host copy of `size` bytes at `address`; None if they are not paused with a copy.
py::object host_copy(std::uint64_t address, std::uint64_t size) {
  const driver::DevicePtr at{CUdeviceptr{address}};
  DeviceRuntime* const owner = Runtime::instance().devices().owner(at);
  if (owner == nullptr) return py::none();
  const driver::DevicePtr block = owner->heap().find(at).at;
  const std::uint64_t offset = address - block.address();
  py::bytearray copy(std::string(size, '\0'));
  bool fits = false;
  const bool found = owner->pauses().with_copy(block, [&](const std::byte* data, Bytes copied) {
    fits = offset + size <= copied.count();
    if (fits) std::memcpy(PyByteArray_AS_STRING(copy.ptr()), data + offset, size);
  });
  return found && fits ? py::object(copy) : py::none();
}

}  // namespace

void bind_pause(py::module_& module) {
  // Each with a pattern and whether its contents may be discarded.
  module.def("pause_all", [](const std::vector<std::pair<std::string, bool>>& what) {
    std::vector<PauseRequest> requests;
    for (const auto& [pattern, discard] : what)
      requests.push_back({pattern, discard ? Contents::kDiscarded : Contents::kKept});
    return without_lock([&] { return Runtime::instance().pauses().pause(requests); });
  });
  module.def("resume_all", [](const std::vector<std::string>& patterns) {
    return without_lock([&] { return Runtime::instance().pauses().resume(patterns); });
  });
  module.def("enter_resident", [](const std::string& pattern) {
    without_lock([&] { return Runtime::instance().pauses().enter_resident(pattern); });
  });
  module.def("leave_resident", [](const std::string& pattern) {
    Runtime::instance().pauses().leave_resident(pattern);
  });
  module.def("allow_eviction", [](const std::string& pattern) {
    raise(Runtime::instance().pauses().evictable().allow(pattern));
  });
  module.def("forbid_eviction", [](const std::string& pattern) {
    raise(Runtime::instance().pauses().evictable().forbid(pattern));
  });
  module.def("host_copy", &host_copy);
  module.def("new_pool", [] { return static_cast<std::uint64_t>(new_pool()); });
  // Whether this thread is in a TagPoolScope with a pool.
  module.def("in_pool", [] { return current_pool() != PoolId::kShared; });
  py::class_<TagPoolScope>(module, "TagPoolScope")
      .def(py::init<const std::string&, std::uint64_t>())
      .def("end", &TagPoolScope::end);
}

}  // namespace spillway
