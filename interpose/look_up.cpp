// SPDX-License-Identifier: Apache-2.0
#include "interpose/look_up.h"

#include "interpose/exports.h"
#include "interpose/libc_symbol.h"
#include "interpose/mode.h"
#include "interpose/next.h"
#include "interpose/proc_address.h"

#include <dlfcn.h>

#include <atomic>
#include <string_view>

namespace spillway::interpose {
namespace {

using Dlsym = void*(void*, const char*);
using Dlvsym = void*(void*, const char*, const char*);

constexpr Answer kGoOn{.ours = false, .result = nullptr};

/// The caller's result without our library. Interposers after ours are queried too.
void* others(void* handle, const char* name, const char* version) {
  if (version == nullptr) return reinterpret_cast<Dlsym*>(spillway_next_dlsym)(handle, name);
  return reinterpret_cast<Dlvsym*>(spillway_next_dlvsym)(handle, name, version);
}

/// The emulated runtime's function for one of a libcudart that a program opened itself; null if the
/// runtime is not emulated or lacks the function.
void* emulated(const char* name, void* found) {
  if (object_of(found) != Object::kRuntime) return nullptr;
  void* behind = next_in_scope(name);
  return behind != nullptr && object_of(behind) == Object::kEmulator ? behind : nullptr;
}

/// Null, with dlerror set, because callers read it without a check.
void* missing(const char* name) {
  return plain_dlsym(RTLD_NEXT, name);
}

Answer look_up(void* handle, const char* name, const char* version, const void* caller) {
  // The caller's own position in the search order determines the next definition.
  if (handle == RTLD_NEXT) return kGoOn;
  const bool inert = mode() == Mode::kPassThrough;
  // so early that no function of the C library may be called
  if (inert && !stopped()) return kGoOn;
  const auto entry = entry_named(name);
  if (!entry && !std::string_view(name).starts_with("cuda")) return kGoOn;
  // The driver looks up its own parts, and Spillway its own driver.
  const Object who = object_of(caller);
  if (who == Object::kDriver || who == Object::kOurs || who == Object::kEmulator) return kGoOn;
  void* found = others(handle, name, version);
  // the caller's own scope may contain it, though ours does not
  if (found == nullptr) return kGoOn;
  if (void* instead = emulated(name, found); instead != nullptr) {
    if (inert || !entry) return {.ours = true, .result = instead};
    found = instead;
  }
  if (!entry) return kGoOn;
  if (object_of(found) == Object::kSelf) {
    // The global scope: our function is in it whether or not the process has CUDA.
    found = next_definition(*entry);
    return {.ours = true, .result = found != nullptr ? exported(*entry) : missing(name)};
  }
  if (inert) return kGoOn;
  if (!defines(found, function_of(*entry).library)) return {.ours = true, .result = found};
  void* ours = wrapped(*entry, found);
  return {.ours = true, .result = ours != nullptr ? ours : found};
}

}  // namespace
}  // namespace spillway::interpose

spillway::interpose::Answer spillway_look_up(void* handle,
                                             const char* name,
                                             const char* version,
                                             const void* caller) {
  return spillway::interpose::look_up(handle, name, version, caller);
}

void spillway_find_next_look_ups() {
  using namespace spillway::interpose;
  // From here, RTLD_NEXT means after us: another interposer, or else the C library.
  const auto find = [](const char* name) {
    void* next = plain_dlsym(RTLD_NEXT, name);
    return next != nullptr ? next : libc_symbol(name);
  };
  std::atomic_ref(spillway_next_dlsym).store(find("dlsym"));
  std::atomic_ref(spillway_next_dlvsym).store(find("dlvsym"));
}
