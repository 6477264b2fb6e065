// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/description.h"
#include "emulator/device/machine.h"
#include "emulator/runtime/call.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <unordered_map>

namespace emu = spillway::emulator;
using emu::runtime::enter;
using emu::runtime::enter_on_device;

namespace {

/// The kernels that compiled code has registered, to name them when they are launched. Registration
/// runs before main, so nothing here may depend on the order of constructors.
struct Kernels {
  spillway::Mutex mutex;
  std::unordered_map<const void*, const char*> names;  // mangled; live in the program's image
};

Kernels& kernels() {
  static auto* all = new Kernels;  // never freed: programs unregister while they end
  return *all;
}

std::string name_of(const void* function) {
  const char* mangled = "an unregistered kernel";
  {
    const spillway::Lock lock(kernels().mutex);
    const auto found = kernels().names.find(function);
    if (found != kernels().names.end()) mangled = found->second;
  }
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = readable != nullptr ? readable : mangled;
  std::free(readable);
  return name;
}

template <emu::Literal kName>
cudaError_t refuse_launch(const void* function) {
  return enter<kName>([&] {
    if (emu::machine_if_ready() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    return emu::refuse(("kernel " + name_of(function)).c_str());
  });
}

constexpr double kCyclesPerSecond = 1.98e9;  // of a large accelerator of 2024

/// torch.cuda._sleep: it accesses no memory; it only takes its place and time in the stream.
bool is_sleep(const std::string& name) {
  return name.starts_with("at::cuda::") && name.find("::spin_kernel(") != std::string::npos;
}

template <emu::Literal kName>
cudaError_t launch(const void* function, void** arguments, cudaStream_t stream) {
  if (!is_sleep(name_of(function))) return refuse_launch<kName>(function);
  return enter_on_device<kName>([&] {
    const auto cycles = static_cast<double>(*static_cast<const std::int64_t*>(arguments[0]));
    emu::Operation operation;
    operation.work = [] {
    };
    operation.name = "torch.cuda._sleep";
    operation.cost = {emu::Cost::Kind::kMemory, 0, cycles / kCyclesPerSecond};
    return emu::call_on_stream<"cuLaunchKernel">(stream,
                                                 [&](emu::Machine& machine, emu::Stream& on) {
                                                   machine.streams.submit(on, std::move(operation));
                                                   return CUDA_SUCCESS;
                                                 });
  });
}

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};

LaunchConfiguration& launch_configuration() {
  static thread_local LaunchConfiguration pushed;
  return pushed;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* /*image*/) {
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}

void __cudaUnregisterFatBinary(void** /*handle*/) {}

char __cudaInitModule(void** /*handle*/) {
  return 1;
}

void __cudaRegisterVar(void** /*handle*/,
                       char* /*variable*/,
                       char* /*address*/,
                       const char* /*name*/,
                       int /*external*/,
                       size_t /*bytes*/,
                       int /*constant*/,
                       int /*global*/) {}

void __cudaRegisterFunction(void** /*handle*/,
                            const char* function,
                            char* /*device_function*/,
                            const char* name,
                            int /*thread_limit*/,
                            uint3* /*thread_id*/,
                            uint3* /*block_id*/,
                            dim3* /*block*/,
                            dim3* /*grid*/,
                            int* /*warp*/) {
  const spillway::Lock lock(kernels().mutex);
  kernels().names[function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  launch_configuration() = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const LaunchConfiguration& pushed = launch_configuration();
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel,
                               dim3 /*grid*/,
                               dim3 /*block*/,
                               void** arguments,
                               size_t /*shared*/,
                               cudaStream_t stream) {
  return launch<"cudaLaunchKernel">(kernel, arguments, stream);
}

cudaError_t cudaLaunchKernel(const void* function,
                             dim3 /*grid*/,
                             dim3 /*block*/,
                             void** arguments,
                             size_t /*shared*/,
                             cudaStream_t stream) {
  return launch<"cudaLaunchKernel">(function, arguments, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* /*configuration*/,
                                const void* function,
                                void** /*arguments*/) {
  return refuse_launch<"cudaLaunchKernelExC">(function);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function,
                                        dim3 /*grid*/,
                                        dim3 /*block*/,
                                        void** /*arguments*/,
                                        size_t /*shared*/,
                                        cudaStream_t /*stream*/) {
  return refuse_launch<"cudaLaunchCooperativeKernel">(function);
}

// Code that plans a launch calls these; the launch itself fails, with the kernel's name.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*function*/) {
  return enter<"cudaFuncGetAttributes">([&] {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (emu::machine_if_ready() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    const emu::Chip& chip = emu::machine_if_ready()->settings.chip;
    *attributes = {};
    attributes->maxThreadsPerBlock = emu::kThreadsPerBlock;
    attributes->numRegs = 32;
    attributes->binaryVersion = chip.major * 10 + chip.minor;
    attributes->ptxVersion = attributes->binaryVersion;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaFuncSetAttribute(const void* /*function*/, cudaFuncAttribute /*name*/, int) {
  return enter<"cudaFuncSetAttribute">([] { return CUDA_SUCCESS; });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* /*function*/, int threads, size_t /*shared*/, unsigned /*flags*/) {
  return enter<"cudaOccupancyMaxActiveBlocksPerMultiprocessor">([&] {
    if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (emu::machine_if_ready() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    *blocks = emu::machine_if_ready()->settings.chip.threads_per_multiprocessor / threads;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void* function,
                                                          int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, function, threads, shared, 0);
}
}
