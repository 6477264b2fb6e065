// SPDX-License-Identifier: Apache-2.0
// What is reported of launches, with the virtual clock: 10 GiB/s to the device and 10 us of
// latency.
#include "tests/hooks/kernel_names/watched.h"

#include <sys/mman.h>

#include <array>
#include <string>

namespace spillway::hooks {
namespace {

constexpr double kMillisecond = 1e6;
constexpr double kKernel = 1.02 * kMillisecond;  // with what the host's own calls take

class LaunchTimesTest : public Watched {
 protected:
  static double length(const Launch& launch) {
    return static_cast<double>(launch.end - launch.begin);
  }

  /// A copy of 16 MiB to the device, as the copy engine times it.
  void copy_in() {
    constexpr Bytes kBytes{16U << 20U};
    const std::size_t bytes = kBytes.count();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr at = 0;
    const auto access = driver::access_of(DeviceId{0});
    ASSERT_EQ(driver_.MemCreate(&memory, bytes, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.MemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.MemMap(at, bytes, 0, memory, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.MemSetAccess(at, bytes, &access, 1), CUDA_SUCCESS);
    void* host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(driver_.MemHostRegister(host, bytes, 0), CUDA_SUCCESS);
    {
      const driver::SpanLog::Scope timed(
          device_, driver::Stream(stream_), driver::Span::Kind::kIn, kBytes);
      ASSERT_EQ(driver_.MemcpyHtoDAsync(at, host, bytes, stream_), CUDA_SUCCESS);
    }
  }

  /// The stream that is reported of a launch by the function `id`.
  template <typename Parameters>
  std::uint64_t reported(CUpti_CallbackId id, CUstream stream) {
    Parameters parameters{};
    CUlaunchConfig configuration{};
    if constexpr (requires { parameters.config; }) {
      configuration.hStream = stream;
      parameters.config = &configuration;
    } else {
      parameters.hStream = stream;
    }
    cupti_.make({id, &parameters, "kernel", device_.context});
    const auto launches = taken();
    return launches.size() == 1 ? launches[0].stream : 1;
  }

  template <typename Parameters>
  void expect_stream(CUpti_CallbackId id, CUstream default_stream) {
    EXPECT_EQ(reported<Parameters>(id, stream_), number(stream_)) << id;
    EXPECT_EQ(reported<Parameters>(id, nullptr), number(default_stream)) << id;
  }
};

TEST_F(LaunchTimesTest, LaunchesAreNamedTimedAndCounted) {
  ASSERT_TRUE(start().ok());
  launch("first", 1);
  launch("second", 3);
  launch(nullptr, 2);

  const auto launches = taken();
  ASSERT_EQ(launches.size(), 3U);
  EXPECT_EQ(launches[0].name, "first");
  EXPECT_EQ(launches[1].name, "second");
  EXPECT_EQ(launches[2].name, "");
  EXPECT_EQ(launches[1].device, DeviceId{0});
  EXPECT_EQ(launches[1].stream, number(stream_));
  EXPECT_GE(length(launches[1]), 3 * kMillisecond);
  EXPECT_LE(length(launches[1]), 3 * kKernel);
  EXPECT_GE(length(launches[2]), 2 * kMillisecond);
  EXPECT_LE(length(launches[2]), 2 * kKernel);
  EXPECT_EQ(watch_.counts().launches, 3U);
  EXPECT_EQ(watch_.counts().untimed, 0U);
}

TEST_F(LaunchTimesTest, TimesOfAStreamGoForward) {
  ASSERT_TRUE(start().ok());
  for (int each = 0; each < 20; ++each)
    launch("kernel");

  const auto launches = taken();
  ASSERT_EQ(launches.size(), 20U);
  for (std::size_t each = 1; each < launches.size(); ++each) {
    EXPECT_LE(launches[each - 1].end, launches[each].begin);
    EXPECT_LE(launches[each - 1].submitted, launches[each].submitted);
  }
}

TEST_F(LaunchTimesTest, KernelsAndCopiesStandOnOneTimeAxis) {
  driver::SpanLog::start();
  ASSERT_TRUE(start().ok());
  launch("before");
  copy_in();
  launch("behind");

  const auto launches = taken();
  const auto copies = driver::SpanLog::instance().take();
  ASSERT_EQ(launches.size(), 2U);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_LE(launches[0].end, copies[0].begin);
  EXPECT_GE(copies[0].begin - launches[0].begin, static_cast<std::uint64_t>(kMillisecond));
  EXPECT_LE(copies[0].end, launches[1].begin);
  EXPECT_LT(launches[0].submitted, copies[0].submitted);
  EXPECT_LT(copies[0].submitted, launches[1].submitted);
}

TEST_F(LaunchTimesTest, TheNameIsCopied) {
  ASSERT_TRUE(start().ok());
  std::string name = "kernel";
  launch(name.c_str());
  name = "xxxxxx";
  launch("kernel");

  const auto launches = taken();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].name, "kernel");
  EXPECT_EQ(launches[1].name, "kernel");
}

TEST_F(LaunchTimesTest, EveryLaunchFunctionReportsItsStreamAndTheDefaultOneThatTheDriverTakes) {
  ASSERT_TRUE(start().ok());

  expect_stream<cuLaunchKernel_params>(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, nullptr);
  expect_stream<cuLaunchKernel_ptsz_params>(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
                                            CU_STREAM_PER_THREAD);
  expect_stream<cuLaunchKernelEx_params>(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, nullptr);
  expect_stream<cuLaunchKernelEx_ptsz_params>(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
                                              CU_STREAM_PER_THREAD);
  expect_stream<cuLaunchCooperativeKernel_params>(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
                                                  nullptr);
  expect_stream<cuLaunchCooperativeKernel_ptsz_params>(
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, CU_STREAM_PER_THREAD);
}

TEST_F(LaunchTimesTest, InACaptureLaunchesAreCountedAndNotTimed) {
  using Begin = PFN_cuStreamBeginCapture_v10010;
  using End = PFN_cuStreamEndCapture_v10000;
  const auto begin =
      reinterpret_cast<Begin>(spillway_emulator_proc_address("cuStreamBeginCapture", 10010));
  const auto end =
      reinterpret_cast<End>(spillway_emulator_proc_address("cuStreamEndCapture", 10000));
  ASSERT_TRUE(start().ok());
  CUgraph graph = nullptr;

  ASSERT_EQ(begin(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  call({.symbol = "captured", .context = device_.context}, stream_);
  EXPECT_EQ(end(stream_, &graph), CUDA_SUCCESS);  // which a refused call would have broken

  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(watch_.counts().launches, 1U);
  EXPECT_EQ(watch_.counts().untimed, 1U);
}

TEST_F(LaunchTimesTest, ALaunchThatFailsIsNotTimed) {
  ASSERT_TRUE(start().ok());
  launch("kernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);

  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(watch_.counts().untimed, 1U);
}

TEST_F(LaunchTimesTest, TheEndOfAnotherCallIsNotALaunchsEnd) {
  ASSERT_TRUE(start().ok());
  call({.symbol = "kernel", .context = device_.context}, stream_, [&] {
    CUpti_CallbackData other{};
    other.callbackSite = CUPTI_API_EXIT;
    cupti_.call_back(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &other);
    work(stream_, 1);
  });

  const auto launches = taken();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_GE(length(launches[0]), kMillisecond);
}

TEST_F(LaunchTimesTest, AContextThatIsNotItsDevicesPrimaryOneIsNotTimed) {
  ASSERT_TRUE(start().ok());
  int other = 0;
  call({.symbol = "kernel", .context = reinterpret_cast<CUcontext>(&other)}, stream_);
  call({.symbol = "kernel"}, stream_);

  EXPECT_TRUE(taken().empty());
  EXPECT_EQ(watch_.counts().untimed, 2U);
}

TEST_F(LaunchTimesTest, ADriverThatRefusesLeavesLaunchesUntimed) {
  for (const char* fault : {"cuCtxGetDevice:1+=unknown",
                            "cuEventRecord:1+=unknown",
                            "cuEventRecord:3+=unknown"}) {  // the origin's, the first, the last
    ASSERT_TRUE(start().ok());
    spillway_emulator_fault(fault);
    launch("kernel");
    launch("kernel");
    spillway_emulator_fault(nullptr);
    EXPECT_GE(watch_.counts().untimed, 1U) << fault;
    EXPECT_EQ(taken().size() + watch_.counts().untimed, 2U) << fault;
    watch_.stop();
  }
}

}  // namespace
}  // namespace spillway::hooks
