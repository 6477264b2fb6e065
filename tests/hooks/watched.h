// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"
#include "allocator/driver/span_log.h"
#include "emulator/emulator.h"
#include "hooks/launch_watch.h"
#include "tests/hooks/synthetic_cupti.h"

#include <cupti.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace spillway::hooks {

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
    cuLaunchKernel_params parameters{};
    parameters.hStream = stream;
    cupti_.make(
        {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &parameters, name, device_.context, result}, [&] {
          spillway_emulator_begin(stream);
          spillway_emulator_cost(stream, static_cast<std::uint64_t>(milliseconds * 4e9), 0, 0, 0);
        });
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
