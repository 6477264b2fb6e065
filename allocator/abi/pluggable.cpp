// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/pluggable.h"

#include "allocator/base/log.h"
#include "allocator/device/fork.h"
#include "allocator/device/out_of_memory.h"
#include "allocator/runtime/runtime.h"

#include <dlfcn.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>

namespace spillway {
namespace {

using Throw = void (*)(const char* text);

/// The function that throws PyTorch's own out-of-memory error. It is in a separate library beside
/// this one, which is opened only if PyTorch is loaded. Null if it is not.
Throw torch_thrower() {
  if (dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return nullptr;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&spillway_malloc), &self) == 0) return nullptr;
  std::string path = self.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libspillway_torch_errors.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps a text for each thread
    if (log_enabled()) log("torch.OutOfMemoryError cannot be raised: " + std::string(dlerror()));
    return nullptr;
  }
  return reinterpret_cast<Throw>(dlsym(library, "spillway_throw_out_of_memory"));
}

[[noreturn]] void fail(DeviceRuntime& runtime, Bytes size, const Status& why) {
  if (why.code() != Code::kOutOfDeviceMemory) throw std::runtime_error(why.message());
  const std::string text = out_of_memory_text(runtime, size, why);
  if (static const Throw thrower = torch_thrower(); thrower != nullptr) thrower(text.c_str());
  throw std::runtime_error(text);
}

/// Any object of a C++ class with virtual functions: sufficient to query its type.
class Polymorphic {
 public:
  Polymorphic() = default;
  virtual ~Polymorphic() = default;
  Polymorphic(const Polymorphic&) = delete;
  Polymorphic& operator=(const Polymorphic&) = delete;
};

/// c10::cuda::CUDACachingAllocator::allocator; null in a process without PyTorch.
const std::atomic<const Polymorphic*>* allocator_of_torch() {
  void* const library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<const std::atomic<const Polymorphic*>*>(
      dlsym(library, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
}

/// Whether an allocator of PyTorch's own allocates the process's tensors. It then requests only the
/// segments of MemPools from spillway_malloc, caches them, and frees them with their pool.
bool torch_caches() {
  static const auto* const current = allocator_of_torch();
  const Polymorphic* const allocator = current == nullptr ? nullptr : current->load();
  if (allocator == nullptr) return false;
  const std::string_view type = typeid(*allocator).name();
  return type.find("NativeCaching") != std::string_view::npos ||
         type.find("MallocAsync") != std::string_view::npos;
}

std::atomic<const TorchMemory*> torch_memory{nullptr};
std::atomic<bool> served{false};

}  // namespace

void serve_pluggable(const TorchMemory& memory) {
  torch_memory.store(&memory, std::memory_order_release);
}

bool pluggable_has_served() {
  return served.load(std::memory_order_relaxed);
}

}  // namespace spillway

void* spillway_malloc(size_t size, int device, void* stream) {
  const auto* const torch = spillway::torch_memory.load(std::memory_order_acquire);
  if (torch != nullptr) return torch->allocate(size, device, stream);
  const auto runtime = spillway::Runtime::instance().device(spillway::DeviceId{device});
  if (!runtime.ok()) throw std::runtime_error(runtime.status().message());
  auto block = runtime.value()->allocate(
      spillway::Bytes{size},
      spillway::driver::Stream(static_cast<CUstream>(stream), spillway::DeviceId{device}));
  if (!block.ok()) spillway::fail(*runtime.value(), spillway::Bytes{size}, block.status());
  if (!spillway::pluggable_has_served()) spillway::served.store(true, std::memory_order_relaxed);
  return block.value().raw();
}

void spillway_free(void* at, size_t, int device, void*) {
  if (at == nullptr || spillway::in_forked_child()) return;
  const auto* const torch = spillway::torch_memory.load(std::memory_order_acquire);
  if (torch != nullptr) return torch->release(at);
  auto* const runtime = spillway::Runtime::instance().devices().if_made(spillway::DeviceId{device});
  if (runtime == nullptr) return;
  runtime->free(spillway::driver::DevicePtr(at));
  if (spillway::torch_caches()) runtime->heap().trim_sync();
}
