// SPDX-License-Identifier: Apache-2.0
// The NVTX of this program is the real one; what it loads is reported by hand.
#include "hooks/nvtx.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

extern "C" {
// NVTX takes it where no library is named, instead of its own null.
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
}

namespace spillway::hooks {
namespace {

thread_local std::vector<std::string> reported;
thread_local std::vector<const void*> domains;

const RangeListener kListener{[](const void* domain, const char* name) {
                                reported.push_back(std::string("+") + name);
                                domains.push_back(domain);
                              },
                              [](const void* domain) {
                                reported.emplace_back("-");
                                domains.push_back(domain);
                              }};

using Words = std::vector<std::string>;

class NvtxTest : public testing::Test {
 protected:
  void SetUp() override {
    InitializeInjectionNvtx2_fnptr = attach_to_nvtx;
    set_range_listener(&kListener);
    reported.clear();
    domains.clear();
  }

  void TearDown() override { set_range_listener(nullptr); }
};

TEST_F(NvtxTest, RangesAreReportedInOrderWithTheirDepth) {
  EXPECT_EQ(nvtxRangePushA("outer"), 0);
  EXPECT_EQ(nvtxRangePushA("inner"), 1);
  EXPECT_EQ(nvtxRangePop(), 1);
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_EQ(reported, (Words{"+outer", "+inner", "-", "-"}));
}

TEST_F(NvtxTest, APopWithoutAPushIsNotReported) {
  EXPECT_LT(nvtxRangePop(), 0);
  EXPECT_TRUE(reported.empty());
}

TEST_F(NvtxTest, DescribedAndRegisteredNamesAreRead) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = "described";
  nvtxRangePushEx(&range);
  nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered = nvtxDomainRegisterStringA(domain, "registered");
  nvtxDomainRangePushEx(domain, &range);
  nvtxRangePushW(L"wide");
  EXPECT_EQ(reported, (Words{"+described", "+registered", "+"}));
  nvtxRangePop();
  nvtxRangePop();
  nvtxDomainRangePop(domain);
}

TEST_F(NvtxTest, EachDomainHasAStackOfItsOwn) {
  nvtxDomainHandle_t one = nvtxDomainCreateA("one");
  nvtxDomainHandle_t two = nvtxDomainCreateA("two");
  ASSERT_NE(one, two);
  nvtxEventAttributes_t range{};
  EXPECT_EQ(nvtxDomainRangePushEx(one, &range), 0);
  EXPECT_EQ(nvtxDomainRangePushEx(two, &range), 0);
  EXPECT_EQ(nvtxDomainRangePop(one), 0);
  EXPECT_LT(nvtxDomainRangePop(one), 0);
  EXPECT_EQ(nvtxDomainRangePop(two), 0);
  EXPECT_EQ(domains, (std::vector<const void*>{one, two, one, two}));
}

TEST_F(NvtxTest, EachThreadHasStacksOfItsOwn) {
  nvtxRangePushA("here");
  std::thread([] {
    EXPECT_LT(nvtxRangePop(), 0);
    EXPECT_TRUE(reported.empty());
  }).join();
  EXPECT_EQ(nvtxRangePop(), 0);
}

TEST_F(NvtxTest, WithoutAListenerNothingIsReported) {
  set_range_listener(nullptr);
  EXPECT_EQ(nvtxRangePushA("unheard"), 0);
  EXPECT_EQ(nvtxRangePop(), 0);
  EXPECT_TRUE(reported.empty());
}

TEST_F(NvtxTest, AnNvtxThatIsNotUnderstoodGoesOnWithout) {
  EXPECT_EQ(attach_to_nvtx(nullptr), 0);
  EXPECT_EQ(attach_to_nvtx([](std::uint32_t) -> const void* { return nullptr; }), 0);
  static const NvtxExportTableCallbacks older{0, nullptr};
  EXPECT_EQ(attach_to_nvtx([](std::uint32_t) -> const void* { return &older; }), 0);
}

}  // namespace
}  // namespace spillway::hooks
