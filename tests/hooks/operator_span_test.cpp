// SPDX-License-Identifier: Apache-2.0
#include "hooks/operator_span.h"

#include "allocator/driver/span_names.h"
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace spillway::hooks {
namespace {

using driver::Span;
using driver::SpanLog;

class OperatorSpanTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
    current_ = std::make_unique<driver::CurrentDevice>(*device_.api, device_.context);
    ASSERT_EQ(device_.api->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
  }

  void TearDown() override {
    SpanLog::instance().stop();
    device_.api->StreamDestroy(stream_);
  }

  std::vector<Span> taken() {
    device_.api->CtxSynchronize();
    return SpanLog::instance().take();
  }

  driver::Device device_{};
  std::unique_ptr<driver::CurrentDevice> current_;
  CUstream stream_ = nullptr;
};

TEST_F(OperatorSpanTest, OffNothingIsTimed) {
  { const OperatorSpan span(device_, driver::Stream(stream_), "aten::mul", TagId{3}); }
  SpanLog::start();
  EXPECT_TRUE(taken().empty());
}

TEST_F(OperatorSpanTest, HasItsNameItsTagAndItsStream) {
  SpanLog::start();
  { const OperatorSpan span(device_, driver::Stream(stream_), "aten::mul", TagId{3}); }
  const auto spans = taken();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kOperator);
  EXPECT_EQ(driver::span_name(spans[0].name), "aten::mul");
  EXPECT_EQ(spans[0].tag, TagId{3});
  EXPECT_EQ(spans[0].stream, reinterpret_cast<std::uint64_t>(stream_));
  EXPECT_LE(spans[0].begin, spans[0].end);
}

TEST_F(OperatorSpanTest, LastsAsLongAsWhatItGaveTheStream) {
  SpanLog::start();
  const Bytes size = Bytes{10U << 20U};
  DeviceRuntime& memory = *Runtime::instance().device(DeviceId{0}).value();
  const auto block = memory.allocate(size, driver::Stream(stream_)).value();
  std::vector<char> host(size.count());
  {
    const OperatorSpan span(device_, driver::Stream(stream_), "aten::copy_", TagId{});
    ASSERT_EQ(device_.api->MemcpyHtoDAsync(block.address(), host.data(), host.size(), stream_),
              CUDA_SUCCESS);
  }
  { const OperatorSpan nothing(device_, driver::Stream(stream_), "aten::view", TagId{}); }
  const auto spans = taken();
  memory.free(block);
  ASSERT_EQ(spans.size(), 2U);
  // The modeled link's speed: 10 GiB in a second.
  EXPECT_GE(spans[0].end - spans[0].begin, 1'000'000'000U / 1024);
  EXPECT_LT(spans[1].end - spans[1].begin, 1'000'000'000U / 1024);
  EXPECT_GE(spans[1].begin, spans[0].end);
}

TEST_F(OperatorSpanTest, AThreadWithoutAContextHasOneForIt) {
  SpanLog::start();
  std::thread([this] {
    const OperatorSpan span(device_, driver::Stream(stream_), "MulBackward0", TagId{});
  }).join();
  EXPECT_EQ(driver::span_name(taken().at(0).name), "MulBackward0");
}

TEST_F(OperatorSpanTest, AThreadIsInsideOneUntilItEnds) {
  EXPECT_FALSE(OperatorSpan::inside());
  {
    const OperatorSpan span(device_, driver::Stream(stream_), "aten::linear", TagId{});
    EXPECT_TRUE(OperatorSpan::inside());
  }
  EXPECT_FALSE(OperatorSpan::inside());
}

}  // namespace
}  // namespace spillway::hooks
