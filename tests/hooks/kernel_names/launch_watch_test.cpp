// SPDX-License-Identifier: Apache-2.0
// When launches are watched, and that the program does not notice.
#include "tests/hooks/kernel_names/watched.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spillway::hooks {
namespace {

using LaunchWatchTest = Watched;

bool contains(const Status& status, const char* text) {
  return status.detail().find(text) != std::string::npos;
}

TEST_F(LaunchWatchTest, OffNothingIsRegistered) {
  launch("kernel");
  watch_.step_ended();

  EXPECT_FALSE(LaunchWatch::on());
  EXPECT_EQ(cupti_.asked, 0);
  EXPECT_TRUE(taken().empty());
}

TEST_F(LaunchWatchTest, OnLaunchFunctionsAloneAreEnabled) {
  ASSERT_TRUE(start().ok());

  EXPECT_TRUE(LaunchWatch::on());
  EXPECT_EQ(cupti_.subscribed, 1);
  EXPECT_EQ(cupti_.enabled.size(), launch_sites().size());
  EXPECT_EQ(cupti_.enabled.count(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel), 1U);
}

TEST_F(LaunchWatchTest, WhereAProfilerHasCuptiNothingIsSubscribed) {
  cupti_.holder = "CUPTI for Kineto";
  const Status status = start();

  EXPECT_EQ(status.code(), Code::kNotReady);
  EXPECT_TRUE(contains(status, "a profiler or debugger has CUPTI (CUPTI for Kineto)"));
  EXPECT_FALSE(LaunchWatch::on());
  EXPECT_EQ(cupti_.subscribed, 0);
  EXPECT_TRUE(cupti_.enabled.empty());

  cupti_.holder.clear();
  EXPECT_TRUE(start().ok());
}

TEST_F(LaunchWatchTest, WhereAProfilerIsDueCuptiIsNotAsked) {
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    setenv(name, "/opt/profiler.so", 1);
    const Status status = start();
    unsetenv(name);

    EXPECT_EQ(status.code(), Code::kNotReady);
    EXPECT_TRUE(contains(status, name));
    EXPECT_EQ(cupti_.asked, 0);
  }
}

TEST_F(LaunchWatchTest, ARefusalNamesTheCallAndGivesCuptiBack) {
  cupti_.subscribing = CUPTI_ERROR_NOT_INITIALIZED;
  Status status = start();
  EXPECT_EQ(status.code(), Code::kDriver);
  EXPECT_EQ(status.detail(), "cuptiSubscribe_v2: CUPTI error 15");

  cupti_.subscribing = CUPTI_SUCCESS;
  cupti_.unknown = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx;
  status = start();
  EXPECT_EQ(status.code(), Code::kDriver);
  EXPECT_EQ(status.detail(), "cuptiEnableCallback: CUPTI_ERROR_INVALID_PARAMETER");
  EXPECT_EQ(cupti_.unsubscribed, 1);
  EXPECT_FALSE(LaunchWatch::on());
}

TEST_F(LaunchWatchTest, OneWatchAtATime) {
  ASSERT_TRUE(start().ok());

  EXPECT_EQ(start().code(), Code::kNotReady);
  EXPECT_EQ(cupti_.asked, 1);
  EXPECT_TRUE(LaunchWatch::on());
}

TEST_F(LaunchWatchTest, StepsBelowOneAreNamed) {
  EXPECT_EQ(start(0).code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(start(-1), "steps=-1: expected 1 or more"));
  EXPECT_EQ(cupti_.asked, 0);
}

TEST_F(LaunchWatchTest, AfterItsStepsCuptiIsReleasedOnce) {
  ASSERT_TRUE(start(2).ok());
  launch("in the first step");
  watch_.step_ended();
  EXPECT_TRUE(LaunchWatch::on());
  launch("in the second");
  watch_.step_ended();
  EXPECT_FALSE(LaunchWatch::on());
  launch("in the third");
  watch_.step_ended();
  watch_.stop();

  EXPECT_EQ(cupti_.unsubscribed, 1);
  EXPECT_EQ(taken().size(), 2U);
  EXPECT_EQ(watch_.counts().launches, 2U);
}

TEST_F(LaunchWatchTest, ANewWatchBeginsWithNothing) {
  ASSERT_TRUE(start().ok());
  launch("kernel");
  watch_.stop();
  ASSERT_TRUE(start().ok());

  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(watch_.counts().launches, 0U);
}

TEST_F(LaunchWatchTest, ALaunchThatTheEndCutsInTwoIsLeftOut) {
  const auto cut_one = [&] {
    ASSERT_TRUE(start().ok());
    call({.symbol = "cut", .context = device_.context}, stream_, [&] { watch_.stop(); });
    ASSERT_TRUE(start().ok());
    launch("whole");
    const auto launches = taken();
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].name, "whole");
    watch_.stop();
  };
  cut_one();
  const std::uint64_t events = spillway_emulator_count("cuEventCreate");
  cut_one();

  EXPECT_EQ(spillway_emulator_count("cuEventCreate"), events);
}

TEST_F(LaunchWatchTest, CallbacksOfNoLaunchAreIgnored) {
  ASSERT_TRUE(start().ok());
  const cuLaunchKernel_params parameters{};
  CUpti_CallbackData data{};
  data.functionParams = &parameters;
  data.callbackSite = CUPTI_API_ENTER;
  data.context = device_.context;
  const auto call_back = [&](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    cupti_.call_back(domain, id, &data);
  };

  call_back(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  call_back(CUPTI_CB_DOMAIN_DRIVER_API, 1U << 20U);
  call_back(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  data.callbackSite = CUPTI_API_EXIT;  // an end without a beginning
  call_back(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  watch_.stop();
  data.callbackSite = CUPTI_API_ENTER;  // one that comes late
  call_back(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);

  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(watch_.counts().launches, 0U);
  EXPECT_EQ(watch_.counts().untimed, 0U);
}

TEST_F(LaunchWatchTest, NoExceptionLeavesACallback) {
  static driver::Api table = driver_;
  table.CtxGetDevice = [](CUdevice*) -> CUresult {
    throw std::runtime_error("no memory");
  };
  ASSERT_TRUE(start(table).ok());

  EXPECT_NO_THROW(launch("kernel"));

  EXPECT_EQ(watch_.counts().untimed, 1U);
}

TEST_F(LaunchWatchTest, WhatTheDriverDoesForUsIsNoLaunch) {
  static driver::Api table = driver_;
  static const auto is_capturing = driver_.StreamIsCapturing;
  static const CUcontext context = device_.context;
  static bool launches = true;  // once
  table.StreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    cuLaunchKernel_params parameters{};
    parameters.hStream = stream;
    if (std::exchange(launches, false)) {
      SyntheticCupti::instance().make(
          {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &parameters, "ours", context});
    }
    return is_capturing(stream, status);
  };
  ASSERT_TRUE(start(table).ok());
  launch("theirs");

  EXPECT_FALSE(launches);
  EXPECT_EQ(watch_.counts().launches, 1U);
  EXPECT_EQ(taken().at(0).name, "theirs");
}

TEST_F(LaunchWatchTest, AForkedChildHasNone) {
  ASSERT_TRUE(start().ok());
  launch("kernel");
  const pid_t child = fork();
  if (child == 0) {
    const bool off = !LaunchWatch::on();
    launch("in the child");
    watch_.step_ended();
    watch_.stop();
    const bool nothing = LaunchWatch::take().empty() && watch_.counts().launches == 1;
    const bool kept = cupti_.unsubscribed == 0 && start().code() == Code::kNotReady;
    _exit(off && nothing && kept ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);

  EXPECT_TRUE(LaunchWatch::on());
  EXPECT_EQ(taken().size(), 1U);
}

TEST_F(LaunchWatchTest, ThreadsLaunchWhileOthersTakeAndStop) {
  ASSERT_TRUE(start().ok());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      const driver::CurrentDevice current(driver_, device_.context);
      for (int each = 0; each < 200; ++each)
        launch(each % 2 == 0 ? "even" : "odd", 0.01);
    });
  }
  std::size_t seen = 0;
  for (int looks = 0; looks < 100; ++looks)
    seen += LaunchWatch::take().size();
  for (std::thread& each : threads)
    each.join();
  watch_.stop();
  seen += taken().size();

  EXPECT_EQ(seen, 400U);
  EXPECT_EQ(watch_.counts().launches, 400U);
}

}  // namespace
}  // namespace spillway::hooks
