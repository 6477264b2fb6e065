// SPDX-License-Identifier: Apache-2.0

// The functions that PyTorch calls in libnvidia-ml.so.1. Newer versions call it without a check,
// because it exists wherever a GPU does. This library has that name for the loader only (its
// SONAME, not its file's). Only callers in a process that has loaded it by its path find it.
//
// Numbers and signatures are those of NVML's API reference.

#define SPILLWAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kCudaVersion = 13000;

}  // namespace

SPILLWAY_EXPORT int nvmlInit_v2() {
  return kSuccess;
}

/// There is a device without further data: PyTorch then makes no more queries.
SPILLWAY_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* /*id*/, void** device) {
  *device = nullptr;
  return kSuccess;
}

/// Out-of-memory errors list other processes on the device; there are none.
SPILLWAY_EXPORT int nvmlDeviceGetComputeRunningProcesses(void* /*device*/,
                                                         unsigned* count,
                                                         void* /*processes*/) {
  *count = 0;
  return kSuccess;
}

SPILLWAY_EXPORT int nvmlDeviceGetGpuFabricInfoV(void* /*device*/, void* /*info*/) {
  return kNotSupported;
}

SPILLWAY_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void* /*device*/,
                                                        unsigned /*link*/,
                                                        int* /*type*/) {
  return kNotSupported;
}

SPILLWAY_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* /*device*/,
                                                        unsigned /*link*/,
                                                        void* /*info*/) {
  return kNotSupported;
}

SPILLWAY_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}
