// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

namespace spillway {

// Every driver function that Spillway calls fails, call by call, in the tests that read these
// lists: every_fault_test.cpp of tests/heap and tests/residency, tests/runtime/open_test.cpp.
// ApiTest keeps them complete.

/// While a heap serves requests.
inline constexpr std::array kFaultedInHeap = {
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuCtxPushCurrent",
    "cuThreadExchangeStreamCaptureMode",
};

/// From a heap's creation to its end.
inline constexpr std::array kFaultedInHeapsLife = {
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemGetInfo",
    "cuEventDestroy",
    "cuCtxPopCurrent",
};

/// While copies leave and are fetched.
inline constexpr std::array kFaultedInResidency = {
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemcpyBatchAsync",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuThreadExchangeStreamCaptureMode",
};

/// While a device is made ready.
inline constexpr std::array kFaultedInOpening = {
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuMemGetInfo",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuStreamCreateWithPriority",
};

/// One by one, by hand: in tests/driver, tests/hooks, and where memory is shared (tests/sharing).
inline constexpr std::array kFaultedByHand = {
    "cuInit",
    "cuGetErrorName",
    "cuCtxGetDevice",
    "cuCtxSynchronize",
    "cuEventElapsedTime",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
};

/// Not one by one: it fails only with the context, when nothing runs any more. Who waits for a copy
/// takes every answer for its end.
inline constexpr std::array kNotFaulted = {"cuStreamSynchronize"};

}  // namespace spillway
