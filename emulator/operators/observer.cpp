// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/observer.h"

#include "emulator/operators/accesses.h"
#include "emulator/operators/installation.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/runtime.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace spillway::operators {
namespace {

/// Properties of an operator that the CPU runs.
struct HostOperator {
  const char* name = "";
  const char* plain_name = "";  // without the overload
  bool touches = false;
  std::vector<bool> written;
};

struct State {
  const char* name = nullptr;  // of the outermost operator that runs
  const char* location = nullptr;
  const char* forward = nullptr;  // the location of the backward node that runs here
  int depth = 0;                  // of operators inside operators
};

thread_local State state;

/// The thread's state before the running operator or node; restored at its end.
struct Outer final : at::ObserverContext {
  State before = state;
};

/// Program locations of forward operators, for their backward nodes: the newest ones, by thread and
/// sequence number. A collision only causes a wrong line in a report's text.
std::array<std::atomic<const char*>, 1U << 16U> forward_locations;

std::atomic<const char*>& forward_slot(uint64_t thread, int64_t sequence) {
  const uint64_t mixed = static_cast<uint64_t>(sequence) + thread * 7919;
  return forward_locations[mixed % forward_locations.size()];
}

void set_location(const char* location) {
  state.location = location;
  emulated_runtime().location(location);
}

HostOperator look_at(const at::RecordFunction& function) {
  HostOperator seen;
  const auto name = function.operator_name();
  if (!name) return seen;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  const std::string text = c10::toString(*name);
  if (!op) return seen;
  seen.name = permanent_copy(text);
  seen.plain_name = permanent_copy(name->name);
  // PyTorch's own copy_ is not registered for the CPU, but for all devices.
  seen.touches = text == "aten::copy_" || text == "aten::_local_scalar_dense" ||
                 (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !touches_no_bytes(text));
  seen.written = written_arguments(op->schema());
  return seen;
}

/// By thread, because a lock here would order the program's threads.
const HostOperator& known(const at::RecordFunction& function) {
  thread_local ska::flat_hash_map<const char*, HostOperator> seen;
  // An operator's name is its schema's own text. Other names may be at any address.
  const auto found = seen.find(function.name());
  if (found != seen.end() && std::strcmp(found->second.plain_name, function.name()) == 0) {
    return found->second;
  }
  return seen[function.name()] = look_at(function);
}

void report_host_accesses(const at::RecordFunction& function) {
  const HostOperator& op = known(function);
  const auto inputs = function.inputs();
  if (!op.touches || inputs.size() != op.written.size()) return;
  bool on_host = true;
  const auto each_tensor = [&](auto&& visit) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) visit(tensor, op.written[i]);
      });
    }
  };
  each_tensor([&](const at::Tensor& tensor, bool) { on_host &= tensor.is_cpu(); });
  if (!on_host) return;
  each_tensor(
      [&](const at::Tensor& tensor, bool write) { report_host_access(tensor, write, op.name); });
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  auto outer = state.depth == 0 ? std::make_unique<Outer>() : nullptr;
  if (state.depth++ == 0) {
    const char* here = python_location();
    set_location(here != nullptr ? here : state.forward);
    state.name = permanent_copy(function.name());
  }
  if (function.seqNr() >= 0) {
    forward_slot(at::RecordFunction::currentThreadId(), function.seqNr()).store(state.location);
  }
  if (emulated_runtime().checks) report_host_accesses(function);
  return outer;
}

std::unique_ptr<at::ObserverContext> backward_begins(const at::RecordFunction& function) {
  auto outer = std::make_unique<Outer>();
  const char* forward = forward_slot(function.forwardThreadId(), function.seqNr()).load();
  state.forward = forward == nullptr ? "a backward pass"
                                     : permanent_copy(std::string("backward of ") + forward);
  state.depth = 0;  // operators of a node in Python have locations of their own
  state.name = permanent_copy(function.name());
  set_location(state.forward);
  return outer;
}

void ends(const at::RecordFunction&, at::ObserverContext* context) {
  --state.depth;
  if (context == nullptr) return;
  state = static_cast<Outer*>(context)->before;
  set_location(state.location);
}

}  // namespace

CurrentOp doing_now() {
  return {state.name, state.location};
}

void observe_operators() {
  at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, ends)
                            .needsInputs(emulated_runtime().checks)
                            .scopes({at::RecordScope::FUNCTION}));
  at::addGlobalCallback(at::RecordFunctionCallback(backward_begins, ends)
                            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

namespace {

using PyObject = void*;

/// The few functions of CPython that this needs, found in the process: a C++ program has none.
struct Python {
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }

  int (*is_initialized)() = find<int()>("Py_IsInitialized");
  int (*lock)() = find<int()>("PyGILState_Ensure");
  void (*unlock)(int) = find<void(int)>("PyGILState_Release");
  PyObject (*frame)() = find<PyObject()>("PyEval_GetFrame");  // borrowed
  PyObject (*back)(PyObject) = find<PyObject(PyObject)>("PyFrame_GetBack");
  PyObject (*code)(PyObject) = find<PyObject(PyObject)>("PyFrame_GetCode");
  int (*line)(PyObject) = find<int(PyObject)>("PyFrame_GetLineNumber");
  PyObject (*attribute)(PyObject, const char*) =
      find<PyObject(PyObject, const char*)>("PyObject_GetAttrString");
  const char* (*utf8)(PyObject) = find<const char*(PyObject)>("PyUnicode_AsUTF8");
  void (*clear_error)() = find<void()>("PyErr_Clear");
  void (*keep)(PyObject) = find<void(PyObject)>("Py_IncRef");
  void (*drop)(PyObject) = find<void(PyObject)>("Py_DecRef");

  [[nodiscard]] bool complete() const {
    return is_initialized && lock && unlock && frame && back && code && line && attribute && utf8 &&
           clear_error && keep && drop;
  }
};

struct Code {
  std::string file;
  std::string function;
  bool is_program;  // not PyTorch, not Spillway, not the interpreter's own
};

struct Line {
  PyObject code;
  int line;

  bool operator==(const Line&) const = default;
};

struct HashLines {
  size_t operator()(const std::vector<Line>& lines) const {
    size_t hash = lines.size();
    for (const Line& each : lines) {
      hash = hash * 1000003 + reinterpret_cast<size_t>(each.code) + static_cast<size_t>(each.line);
    }
    return hash;
  }
};

constexpr size_t kShownLines = 4;
constexpr size_t kMaxFrames = 64;
constexpr size_t kMaxLocations = 100000;  // limit for programs that generate code at run time

/// Guarded by the interpreter lock. Codes are kept alive, so that a pointer stays the same code.
struct Locations {
  Python python;
  std::unordered_map<PyObject, Code> codes;
  std::unordered_map<std::vector<Line>, const char*, HashLines> texts;
};

std::string text_of(const Python& python, PyObject code, const char* attribute) {
  PyObject value = python.attribute(code, attribute);
  const char* utf8 = value == nullptr ? nullptr : python.utf8(value);
  if (utf8 == nullptr) python.clear_error();
  std::string text = utf8 == nullptr ? "?" : utf8;
  if (value != nullptr) python.drop(value);
  return text;
}

/// The parent directory of the library that contains `of`, with a slash at its end: a Python
/// package has its libraries in a subdirectory.
std::string package_of(const void* of) {
  Dl_info found{};
  if (dladdr(of, &found) == 0 || found.dli_fname == nullptr) return {};
  std::string path = found.dli_fname;
  for (int above = 0; above < 2; ++above)
    path.erase(std::min(path.rfind('/'), path.size()));
  return path + '/';
}

/// A program may be in a directory of any name, such as Spillway's demonstration.
bool is_program(const std::string& file) {
  static const std::string ours = package_of(reinterpret_cast<const void*>(&python_location));
  static const std::string torch =
      package_of(reinterpret_cast<const void*>(&at::RecordFunction::currentThreadId));
  if (file.starts_with(ours)) return file.starts_with(ours + "demo/");
  return !file.starts_with(torch) && !file.starts_with("<frozen");
}

const Code& known(Locations& locations, PyObject code) {
  const auto [found, fresh] = locations.codes.try_emplace(code);
  if (fresh) {
    locations.python.keep(code);
    found->second.file = text_of(locations.python, code, "co_filename");
    found->second.function = text_of(locations.python, code, "co_name");
    found->second.is_program = is_program(found->second.file);
  }
  return found->second;
}

/// The program's innermost lines, or the library's if there are no others.
std::vector<Line> innermost(Locations& locations) {
  const Python& python = locations.python;
  std::vector<Line> lines;
  std::vector<Line> others;
  PyObject frame = python.frame();
  if (frame != nullptr) python.keep(frame);
  for (size_t i = 0; frame != nullptr && i < kMaxFrames && lines.size() < kShownLines; ++i) {
    PyObject code = python.code(frame);
    auto& kept = known(locations, code).is_program ? lines : others;
    if (kept.size() < kShownLines) kept.push_back({code, python.line(frame)});
    python.drop(code);
    PyObject outer = python.back(frame);
    python.drop(frame);
    frame = outer;
  }
  if (frame != nullptr) python.drop(frame);
  return lines.empty() ? others : lines;
}

const char* location_here(Locations& locations) {
  const std::vector<Line> lines = innermost(locations);
  if (lines.empty()) return nullptr;
  const auto found = locations.texts.find(lines);
  if (found != locations.texts.end()) return found->second;
  if (locations.texts.size() == kMaxLocations) return nullptr;
  std::string text;
  for (const Line& each : lines) {
    const Code& code = locations.codes.at(each.code);
    const std::string file = code.file.substr(code.file.rfind('/') + 1);
    text += (text.empty() ? "" : ", ") + file + ":" + std::to_string(each.line) + " in " +
            code.function;
  }
  return locations.texts.emplace(lines, permanent_copy(std::move(text))).first->second;
}

}  // namespace

const char* python_location() {
  static auto* locations = new Locations;
  const Python& python = locations->python;
  if (!python.complete() || python.is_initialized() == 0) return nullptr;
  // Reading the frames must not order this thread after the last holder of the interpreter lock.
  emulated_runtime().pause_threads(1);
  const int state = python.lock();
  const char* location = location_here(*locations);
  python.unlock(state);
  emulated_runtime().pause_threads(0);
  return location;
}

const char* permanent_copy(std::string text) {
  static std::atomic<bool> taken{false};
  static auto* texts = new std::unordered_set<std::string>;
  while (taken.exchange(true, std::memory_order_acquire))
    sched_yield();
  const char* kept = texts->emplace(std::move(text)).first->c_str();
  taken.store(false, std::memory_order_release);
  return kept;
}

}  // namespace spillway::operators
