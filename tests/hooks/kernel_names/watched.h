// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"
#include "allocator/driver/span_log.h"
#include "emulator/emulator.h"
#include "hooks/kernel_names/launch_watch.h"

#include <cupti.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

namespace spillway::hooks {

/// Stands in for CUPTI: one subscriber, and callbacks around the launches that a test makes, on the
/// test's own threads. One for the process, as CUPTI is.
struct SyntheticCupti {
  static SyntheticCupti& instance() {
    static SyntheticCupti cupti;
    return cupti;
  }

  /// A table over this one.
  static CuptiApi api();

  /// A call of one of the driver's functions, as the program makes it: `body` is what the driver
  /// does. CUPTI's callbacks come before and after where something has enabled them.
  struct Call {
    CUpti_CallbackId id = 0;
    const void* parameters = nullptr;
    const char* symbol = nullptr;
    CUcontext context = nullptr;
    CUresult result = CUDA_SUCCESS;
  };

  void make(
      const Call& call, const std::function<void()>& body = [] {});

  /// A callback whatever is enabled.
  void call_back(CUpti_CallbackDomain domain,
                 CUpti_CallbackId id,
                 const CUpti_CallbackData* data) const {
    callback(user, domain, id, data);
  }

  // What happened.
  int asked = 0;  // to subscribe
  int subscribed = 0;
  int unsubscribed = 0;
  std::set<CUpti_CallbackId> enabled;
  bool has_subscriber = false;

  // What is to happen.
  std::string holder;  // who has CUPTI already
  CUptiResult subscribing = CUPTI_SUCCESS;
  CUpti_CallbackId unknown = 0;  // a function that this CUPTI cannot watch

  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
};

/// Device 0 of the emulated GPU, where a test launches kernels that CUPTI's stand-in reports.
class Watched : public testing::Test {
 protected:
  void SetUp() override {
    cupti_ = SyntheticCupti();
    device_ = driver::Device::open(driver_, DeviceId{0}).value();
    current_ = std::make_unique<driver::CurrentDevice>(driver_, device_.context);
    ASSERT_EQ(driver_.StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  }

  void TearDown() override {
    watch_.stop();
    driver::SpanLog::instance().stop();
    driver_.StreamDestroy(stream_);
  }

  Status start(int steps = 3) { return start(driver_, steps); }

  Status start(const driver::Api& driver, int steps = 3) {
    return watch_.start(SyntheticCupti::api(), driver, {steps});
  }

  /// A kernel that takes this many milliseconds where the clock is virtual.
  void launch(const char* name, double milliseconds = 1, CUresult result = CUDA_SUCCESS) {
    launch_on(stream_, name, milliseconds, result);
  }

  void launch_on(CUstream stream,
                 const char* name,
                 double milliseconds = 1,
                 CUresult result = CUDA_SUCCESS) {
    call({.symbol = name, .context = device_.context, .result = result}, stream, [&] {
      work(stream, milliseconds);
    });
  }

  /// A call of cuLaunchKernel; `body` is what the driver does.
  void call(
      SyntheticCupti::Call call, CUstream stream, const std::function<void()>& body = [] {}) {
    cuLaunchKernel_params parameters{};
    parameters.hStream = stream;
    call.id = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
    call.parameters = &parameters;
    cupti_.make(call, body);
  }

  static void work(CUstream stream, double milliseconds) {
    spillway_emulator_begin(stream);
    spillway_emulator_cost(stream, static_cast<std::uint64_t>(milliseconds * 4e9), 0, 0, 0);
  }

  /// Launches that have ended, which all have.
  std::vector<Launch> taken() {
    driver_.CtxSynchronize();
    return LaunchWatch::take();
  }

  static std::uint64_t number(CUstream stream) { return reinterpret_cast<std::uint64_t>(stream); }

  const driver::Api& driver_ = *driver::api().value();
  SyntheticCupti& cupti_ = SyntheticCupti::instance();
  LaunchWatch& watch_ = LaunchWatch::instance();
  driver::Device device_{};
  std::unique_ptr<driver::CurrentDevice> current_;
  CUstream stream_ = nullptr;
};

}  // namespace spillway::hooks
