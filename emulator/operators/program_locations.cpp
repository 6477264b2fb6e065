// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/program_locations.h"

#include "emulator/operators/runtime.h"

#include <ATen/record_function.h>

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace spillway::operators {
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
