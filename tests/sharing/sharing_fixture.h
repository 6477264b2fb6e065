// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/sharing/memory_handle.h"
#include "tests/heap/heap_fixture.h"

#include <functional>
#include <memory>
#include <string>

namespace spillway {

/// Opens memory of this process again, as another process would.
class SharingTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (HasFatalFailure()) return;
    exports_ = std::make_unique<Exports>(*heap_);
    imports_ = std::make_unique<Imports>(device_);
  }

  SharedBlock shared(driver::DevicePtr at) {
    auto place = exports_->share(at);
    EXPECT_TRUE(place.ok()) << place.status().message();
    return place.ok() ? place.value() : SharedBlock{};
  }

  std::shared_ptr<void> opened(const std::string& handle) {
    auto memory = imports_->open(handle);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? memory.value() : nullptr;
  }

  void release(driver::DevicePtr at) {
    exports_->freed(at);
    free(at);
  }

  void write(const void* at, int value) {
    ASSERT_EQ(
        table_.MemcpyHtoDAsync(driver::DevicePtr(at).address(), &value, sizeof value, nullptr),
        CUDA_SUCCESS);
    ASSERT_EQ(table_.StreamSynchronize(nullptr), CUDA_SUCCESS);
  }

  int read(const void* at) {
    int value = 0;
    EXPECT_EQ(
        table_.MemcpyDtoHAsync(&value, driver::DevicePtr(at).address(), sizeof value, nullptr),
        CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(nullptr), CUDA_SUCCESS);
    return value;
  }

  static const char* at(const std::shared_ptr<void>& memory, Bytes offset) {
    return static_cast<const char*>(memory.get()) + offset.count();
  }

  /// The handle with one thing changed.
  static std::string forged(const std::string& handle,
                            const std::function<void(MemoryHandle&)>& how) {
    MemoryHandle read = MemoryHandle::read(handle).value();
    how(read);
    return read.bytes();
  }

  std::unique_ptr<Exports> exports_;
  std::unique_ptr<Imports> imports_;
};

}  // namespace spillway
