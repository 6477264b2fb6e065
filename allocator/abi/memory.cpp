// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/runtime/runtime.h"

#include <array>
#include <cstdio>

namespace spillway::abi {
namespace {

driver::Stream stream_of(void* handle, DeviceId device) {
  return driver::Stream(static_cast<CUstream>(handle), device);
}

Status not_ours(const char* call, const void* at, const char* why) {
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "%p", at);
  return SPILLWAY_ERROR(Code::kInvalidArgument, std::string(call) + ": " + address.data() + why);
}

Status allocate(int32_t device, uint64_t size, void* stream, void** block) {
  if (block == nullptr) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "spillway_allocate: block is null. Pass a pointer to store the address in.");
  }
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const runtime,
                            Runtime::instance().device(DeviceId{device}));
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr at,
                            runtime->allocate(Bytes{size}, stream_of(stream, DeviceId{device})));
  *block = at.raw();
  return {};
}

/// The device whose allocated block contains `at`. Errors: kInvalidArgument.
Result<DeviceRuntime*> owner_of(const char* call, const void* at) {
  DeviceRuntime* const owner = Runtime::instance().devices().owner(driver::DevicePtr(at));
  if (owner == nullptr) {
    return not_ours(call,
                    at,
                    " is not in an allocated block of Spillway's heap: it comes from another "
                    "allocator or was released before. Pass an address in a block that is still "
                    "allocated.");
  }
  return owner;
}

Status release(void* block) {
  if (block == nullptr) return {};
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const owner, owner_of("spillway_release", block));
  const driver::DevicePtr at(block);
  if (owner->heap().find(at).at != at) {
    return not_ours("spillway_release",
                    block,
                    " is inside a block. Pass the address that spillway_allocate returned.");
  }
  if (owner->free(at)) return {};
  return not_ours("spillway_release", block, " was released by another thread at the same time");
}

Status use(void* at, void* stream) {
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const owner, owner_of("spillway_use", at));
  Status status = owner->record_use(driver::DevicePtr(at), stream_of(stream, owner->device().id));
  if (status.code() != Code::kInvalidArgument) return status;
  return SPILLWAY_ERROR(Code::kInvalidArgument, "spillway_use: " + status.detail());
}

}  // namespace
}  // namespace spillway::abi

int spillway_allocate(int32_t device, uint64_t size, void* stream, void** block) {
  return spillway::abi::at_edge(
      [&] { return spillway::abi::allocate(device, size, stream, block); });
}

int spillway_release(void* block) {
  return spillway::abi::at_edge([&] { return spillway::abi::release(block); });
}

int spillway_use(void* at, void* stream) {
  return spillway::abi::at_edge([&] { return spillway::abi::use(at, stream); });
}
