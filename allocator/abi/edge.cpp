// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"

#include "allocator/device/fork.h"

namespace spillway::abi {
namespace {

int code_of(Code code) {
  switch (code) {
    case Code::kOk:
      return SPILLWAY_OK;
    case Code::kInvalidArgument:
      return SPILLWAY_INVALID_ARGUMENT;
    case Code::kOutOfDeviceMemory:
      return SPILLWAY_OUT_OF_DEVICE_MEMORY;
    case Code::kOutOfHostMemory:
      return SPILLWAY_OUT_OF_HOST_MEMORY;
    case Code::kDriver:
      return SPILLWAY_DRIVER_ERROR;
    case Code::kNoDriver:
      return SPILLWAY_NO_DRIVER;
    case Code::kNotReady:
      return SPILLWAY_NOT_READY;
  }
  return SPILLWAY_DRIVER_ERROR;
}

}  // namespace

std::string& last_error() {
  thread_local std::string text;
  return text;
}

Status refuse_in_forked_child() {
  if (!in_forked_child()) return {};
  return SPILLWAY_ERROR(Code::kNotReady,
                        "this process was forked from one that uses Spillway, and CUDA does not "
                        "work in it. Leave its device memory alone, or start the process with "
                        "spawn instead.");
}

int finish(const Status& status) {
  if (!status.ok()) last_error() = status.detail();
  return code_of(status.code());
}

}  // namespace spillway::abi

const char* spillway_last_error() {
  return spillway::abi::last_error().c_str();
}
