// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"
#include "tests/torch_glue/emulated_operators.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>

extern "C" std::uint64_t spillway_emulator_count(const char* what);
extern "C" void spillway_emulator_clear_races();
extern "C" const char* spillway_emulator_race(std::size_t index);
extern "C" const char* spillway_emulator_fault(const char* spec);

namespace spillway {

/// During its lifetime, the allocator calls it for each event.
class Tracker {
 public:
  using Call = std::function<void(const ccc::TraceEntry&)>;

  explicit Tracker(Call call) {
    static const bool attached = [] {  // for the life of the process
      SpillwayAllocator::instance().attachAllocatorTraceTracker([](const ccc::TraceEntry& entry) {
        if (current()) current()(entry);
      });
      return true;
    }();
    static_cast<void>(attached);
    current() = std::move(call);
  }

  ~Tracker() { current() = nullptr; }

  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

 private:
  static Call& current() {
    static Call call;
    return call;
  }
};

/// Managed storages in a program without Python, on the emulated GPU.
class ModelStateTest : public testing::Test {
 protected:
  static constexpr std::int64_t kElements = 4096;
  static constexpr Bytes kSize{kElements * sizeof(float)};

  void SetUp() override {
    ASSERT_TRUE(emulated_operators()) << dlerror();
    ASSERT_TRUE(use_allocator().ok());
    ManagedStorages::instance().start(Bytes{1});
    ManagedStorages::instance().end_step();
    races_ = spillway_emulator_count("unordered");
  }

  void TearDown() override {
    spillway_emulator_fault(nullptr);
    const auto device = Runtime::instance().device(DeviceId{0});
    ASSERT_TRUE(device.ok());
    device.value()->heap().limits().set_limit({});
    EXPECT_EQ(spillway_emulator_count("unordered"), races_) << spillway_emulator_race(0);
    spillway_emulator_clear_races();
  }

  static DeviceRuntime& device(int index = 0) {
    return *Runtime::instance().device(DeviceId{index}).value();
  }

  /// What a managed tensor holds.
  static at::Tensor values(float first = 0, std::int64_t elements = kElements) {
    return at::arange(elements, at::kFloat).add_(first);
  }

  static at::Tensor on_device(const at::Tensor& values, int index = 0) {
    return values.to(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)));
  }

  static at::Tensor manage(at::Tensor tensor, ModelClass of = ModelClass::kParameter) {
    EXPECT_EQ(ManagedStorages::instance().manage(tensor, of, {}, 0), Unmanaged::kNone);
    return tensor;
  }

  static at::Tensor managed(float first = 0, std::int64_t elements = kElements) {
    return manage(on_device(values(first, elements)));
  }

  static std::shared_ptr<ManagedStorage> of(const at::Tensor& tensor) {
    ManagedStorage* const found = ManagedStorage::of(*tensor.storage().unsafeGetStorageImpl());
    return found == nullptr ? nullptr : found->shared_from_this();
  }

  static std::shared_ptr<ManagedStorage> offloaded(const at::Tensor& tensor) {
    auto storage = of(tensor);
    EXPECT_EQ(storage->offload(), storage->size());
    EXPECT_FALSE(storage->on_device());
    return storage;
  }

  static bool holds(const at::Tensor& tensor, const at::Tensor& expected) {
    return tensor.cpu().equal(expected);
  }

 private:
  std::uint64_t races_ = 0;
};

}  // namespace spillway
