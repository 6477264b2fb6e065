// SPDX-License-Identifier: Apache-2.0
#include "interpose/next.h"

#include "interpose/libc_symbol.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <span>
#include <string>
#include <string_view>

namespace spillway::interpose {
namespace {

using Dlsym = void*(void*, const char*);

constexpr std::array<const char*, 1> kDrivers = {"libcuda.so.1"};
constexpr std::array<const char*, 3> kRuntimes = {
    "libcudart.so.13", "libcudart.so.12", "libcudart.so"};

std::string_view file_name(const char* path) {
  const std::string_view whole(path == nullptr ? "" : path);
  return whole.substr(whole.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

void* plain_dlsym(void* handle, const char* name) {
  static std::atomic<Dlsym*> found{nullptr};
  Dlsym* function = found.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = reinterpret_cast<Dlsym*>(libc_symbol("dlsym"));
    if (function == nullptr) return nullptr;
    found.store(function, std::memory_order_release);
  }
  return function(handle, name);
}

void* next_in_scope(const char* name) {
  void* found = plain_dlsym(RTLD_NEXT, name);
  // Clears an error that this thread did not cause.
  if (found == nullptr) dlerror();  // NOLINT(concurrency-mt-unsafe)
  return found;
}

void* next_definition(Entry entry) {
  const Function& is = function_of(entry);
  const char* name = is.symbol.data();  // made from literals
  if (void* found = next_in_scope(name); found != nullptr) return found;
  // A library that was loaded with RTLD_LOCAL, as Python extensions are, is not after ours in the
  // search order.
  const bool driver = is.library == Library::kDriver;
  for (const char* library :
       driver ? std::span<const char* const>(kDrivers) : std::span<const char* const>(kRuntimes)) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* found = plain_dlsym(handle, name);
    dlclose(handle);  // releases our reference only: the program keeps the library loaded
    if (found != nullptr) return found;
  }
  return nullptr;
}

Object object_of(const void* address) {
  Dl_info is{};
  static const char self = 0;
  static const void* const base = [] {
    Dl_info own{};
    return dladdr(&self, &own) != 0 ? own.dli_fbase : nullptr;
  }();
  if (dladdr(address, &is) == 0) return Object::kOther;
  if (is.dli_fbase == base) return Object::kSelf;
  const std::string_view name = file_name(is.dli_fname);
  if (name.starts_with("libcuda.so")) return Object::kDriver;
  if (name.starts_with("libcudart.so") || name.starts_with("libcudart-")) return Object::kRuntime;
  if (name == "libspillway_emulator.so") return Object::kEmulator;
  if (name.starts_with("libspillway") || name.starts_with("_glue_t")) return Object::kOurs;
  return Object::kOther;
}

bool defines(const void* address, Library library) {
  const Object object = object_of(address);
  if (object == Object::kEmulator) return true;
  return object == (library == Library::kDriver ? Object::kDriver : Object::kRuntime);
}

}  // namespace spillway::interpose
