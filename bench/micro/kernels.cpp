// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/kernels.h"

#include "bench/micro/nvrtc.h"
#include "emulator/emulator.h"

#include <dlfcn.h>

namespace spillway::micro {
namespace {

using namespace literals;

constexpr unsigned kBlocks = 132 * 8;   // of the first two: eight for each processor of an H100
constexpr unsigned kThreads = 256;      // of all but attention
constexpr int kRounds = 100'000;        // of the arithmetic
constexpr Bytes kArray{256ULL << 20U};  // of each operand
constexpr int kSide = 4096;             // of the matrices
constexpr int kLength = 4096;           // queries and keys of a head
constexpr unsigned kHeads = 64;
constexpr std::uint64_t kWidth = 64;  // of a head

constexpr const char* kNames[] = {"fill", "multiply_add", "triad", "gemm", "attention", "empty"};

Result<std::string> architecture(const driver::Device& device) {
  std::string digits = "sm_";
  for (const CUdevice_attribute each : {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR}) {
    int value = 0;
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(
        *device.api, DeviceGetAttribute, &value, each, static_cast<CUdevice>(device.id)));
    digits += std::to_string(value);
  }
  return digits;
}

/// What the emulated GPU is reported instead of a launch.
Status model(CUstream stream, const KernelWork& work) {
  static const auto kBegin = reinterpret_cast<decltype(&spillway_emulator_begin)>(
      dlsym(RTLD_DEFAULT, "spillway_emulator_begin"));
  static const auto kCost = reinterpret_cast<decltype(&spillway_emulator_cost)>(
      dlsym(RTLD_DEFAULT, "spillway_emulator_cost"));
  if (kBegin == nullptr || kCost == nullptr)
    return SPILLWAY_ERROR(Code::kNoDriver, "skipped: this emulated GPU models no kernels");
  kBegin(stream);
  kCost(stream, work.bytes, work.flops, 0, 0);
  return {};
}

}  // namespace

KernelWork work_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kFma:
      return {.flops = 4.0 * kRounds * kBlocks * kThreads, .bytes = 0};
    case Kernel::kTriad:
      return {.flops = 2.0 * static_cast<double>(kArray.count()) / 4, .bytes = 3 * kArray.count()};
    case Kernel::kGemm:
      return {.flops = 2.0 * kSide * kSide * kSide,
              .bytes = std::uint64_t{kSide} * kSide * (2 + 2 + 4)};
    case Kernel::kEmpty:
      return {.flops = 0, .bytes = 0};
    default:
      return {.flops = 4.0 * kLength * kLength * kWidth * kHeads,
              .bytes = kWidth * kHeads * kLength * 4 * 2};
  }
}

Result<std::unique_ptr<Kernels>> Kernels::make(Probe& probe) {
  SPILLWAY_ASSIGN_OR_RETURN(OwnedStream stream, OwnedStream::make(probe));
  std::unique_ptr<Kernels> made(new Kernels(probe, std::move(stream)));
  if (!driver::emulated()) SPILLWAY_RETURN_IF_ERROR(made->load());
  return made;
}

Status Kernels::load() {
  if (!probe_.has_kernels()) {
    SPILLWAY_ASSIGN_OR_RETURN(const std::string name, architecture(probe_.device()));
    SPILLWAY_ASSIGN_OR_RETURN(const std::string image, compile(kKernelsSource, name));
    SPILLWAY_RETURN_IF_ERROR(probe_.load(image, kNames));
  }
  constexpr std::uint64_t kChunks = 3 * kArray.count() / (2_MiB).count();
  SPILLWAY_ASSIGN_OR_RETURN(auto range, DeviceRange::make(probe_, 2_MiB, kChunks));
  memory_.emplace(std::move(range));
  CUdeviceptr at = memory_->at();
  unsigned long long count = memory_->size().count() / 2;
  SPILLWAY_RETURN_IF_ERROR(
      probe_.launch("fill", stream_.handle(), {.x = kBlocks}, kThreads, {&at, &count}));
  return probe_.finish_sync(stream_.handle());
}

Lane Kernels::lane(Kernel kernel, std::uint64_t launches) {
  return {stream_.handle(), [this, kernel, launches] {
            Status status;
            for (std::uint64_t i = 0; i < launches && status.ok(); ++i)
              status = launch(kernel, stream_.handle());
            return status;
          }};
}

Status Kernels::launch(Kernel kernel, CUstream stream) {
  if (driver::emulated()) return model(stream, work_of(kernel));
  if (kernel == Kernel::kEmpty) return probe_.launch("empty", stream, {.x = 1}, 1, {});
  CUdeviceptr to = memory_->at();
  CUdeviceptr left = to + kArray.count();
  CUdeviceptr right = left + kArray.count();
  switch (kernel) {
    case Kernel::kFma: {
      int rounds = kRounds;
      return probe_.launch("multiply_add", stream, {.x = kBlocks}, kThreads, {&to, &rounds});
    }
    case Kernel::kTriad: {
      unsigned long long count = kArray.count() / 16;
      return probe_.launch("triad", stream, {.x = kBlocks}, kThreads, {&to, &left, &right, &count});
    }
    case Kernel::kGemm: {
      int side = kSide;
      return probe_.launch("gemm",
                           stream,
                           {.x = kSide / 128, .y = kSide / 128},
                           kThreads,
                           {&to, &left, &right, &side});
    }
    default: {
      CUdeviceptr value = right + kArray.count() / 2;
      int length = kLength;
      return probe_.launch("attention",
                           stream,
                           {.x = kLength / 128, .y = kHeads},
                           128,
                           {&to, &left, &right, &value, &length});
    }
  }
}

}  // namespace spillway::micro
