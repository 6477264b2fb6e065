// SPDX-License-Identifier: Apache-2.0
#include "interpose/heap_library.h"

#include "interpose/own_path.h"
#include "interpose/wrapper.h"

#include <dlfcn.h>

#include <memory>

namespace spillway::interpose {
namespace {

struct Loaded {
  HeapLibrary functions{};
  std::string error;  ///< empty: loaded
};

template <typename Function>
bool fill(Function*& to, void* at) {
  to = reinterpret_cast<Function*>(at);
  return to != nullptr;
}

Loaded load() {
  Loaded is;
  const std::string path = own_folder() + "/libspillway.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc's is per thread
    is.error = why != nullptr ? why : path + " cannot be loaded";
    return is;
  }
  const bool complete = fill(is.functions.allocate, plain_dlsym(library, "spillway_allocate")) &&
                        fill(is.functions.release, plain_dlsym(library, "spillway_release")) &&
                        fill(is.functions.last_error, plain_dlsym(library, "spillway_last_error"));
  if (!complete) is.error = path + " is of another version";
  return is;
}

const Loaded& loaded() {
  static const auto* only = new Loaded(load());  // never freed, as the library
  return *only;
}

/// A function of the library that contains `beside`. The emulated driver's functions have no
/// symbols.
void* function_beside(void* beside, const char* name) {
  Dl_info is{};
  if (dladdr(beside, &is) == 0) return nullptr;
  void* library = dlopen(is.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = plain_dlsym(library, name);
  using Lookup = void* (*)(const char*, int);
  constexpr int kAnyVersion = 12000;
  if (found == nullptr && object_of(beside) == Object::kEmulator) {
    auto* lookup = reinterpret_cast<Lookup>(plain_dlsym(library, "spillway_emulator_proc_address"));
    if (lookup != nullptr) found = lookup(name, kAnyVersion);
  }
  dlclose(library);
  return found;
}

/// Null if a function is missing.
const Context* find(Library library, void* next) {
  const bool driver = library == Library::kDriver;
  const auto function = [&](const char* of_driver, const char* of_runtime) {
    return function_beside(next, driver ? of_driver : of_runtime);
  };
  auto is = std::make_unique<Context>();
  const bool complete =
      fill(is->get_device, function("cuCtxGetDevice", "cudaGetDevice")) &&
      fill(is->synchronize, function("cuCtxSynchronize", "cudaDeviceSynchronize")) &&
      fill(is->synchronize_stream, function("cuStreamSynchronize", "cudaStreamSynchronize"));
  return complete ? is.release() : nullptr;  // never freed, as the library
}

}  // namespace

const HeapLibrary* heap_library() {
  return loaded().error.empty() ? &loaded().functions : nullptr;
}

std::string heap_library_error() {
  return loaded().error;
}

const Context* context_of(Library library) {
  // Called for a served call, so the next definition of one of the two is known.
  const auto next = [](Entry allocate, Entry release) {
    void* found = next_of(allocate).load();
    return found != nullptr ? found : next_of(release).load();
  };
  if (library == Library::kDriver) {
    static const Context* const driver =
        find(library, next(Entry::k_cuMemAlloc_v2, Entry::k_cuMemFree_v2));
    return driver;
  }
  static const Context* const runtime = find(library, next(Entry::k_cudaMalloc, Entry::k_cudaFree));
  return runtime;
}

}  // namespace spillway::interpose
