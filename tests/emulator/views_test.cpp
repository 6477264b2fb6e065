// SPDX-License-Identifier: Apache-2.0
// Memory that is mapped at two addresses is one memory, to the bytes and to the order checker.
#include "tests/emulator/emulated.h"

namespace {

using namespace emulated;

/// Two units of memory, mapped side by side and, in the other order, a second time behind.
class ViewsTest : public emulated::Test {
 protected:
  void SetUp() override {
    emulated::Test::SetUp();
    ASSERT_EQ(CU(MemAddressReserve, 10020)(&base_, 4 * kUnit, 0, 0, 0), CUDA_SUCCESS);
    const CUmemAllocationProp properties = memory_of(0);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(CU(MemCreate, 10020)(&handles_[i], kUnit, &properties, 0), CUDA_SUCCESS);
      ASSERT_EQ(map(i, i), CUDA_SUCCESS);
    }
    ASSERT_EQ(map(3, 0), CUDA_SUCCESS);
    ASSERT_EQ(map(2, 1), CUDA_SUCCESS);
    const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ASSERT_EQ(CU(MemSetAccess, 10020)(base_, 4 * kUnit, &access, 1), CUDA_SUCCESS);
  }

  void TearDown() override {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::size_t i = 4; i-- > 0;)
      CU(MemUnmap, 10020)(base_ + i * kUnit, kUnit);
    for (const CUmemGenericAllocationHandle handle : handles_)
      CU(MemRelease, 10020)(handle);
    CU(MemAddressFree, 10020)(base_, 4 * kUnit);
    EXPECT_EQ(spillway_emulator_used(0), 0U);
  }

  CUresult map(std::size_t unit, std::size_t handle) {
    return CU(MemMap, 10020)(base_ + unit * kUnit, kUnit, 0, handles_[handle], 0);
  }

  [[nodiscard]] char* unit(std::size_t index) const {
    return reinterpret_cast<char*>(base_ + index * kUnit);
  }

  static void operation(
      cudaStream_t stream, const void* at, std::size_t bytes, bool write, const char* name) {
    spillway_emulator_drain(stream);
    spillway_emulator_begin(stream);
    spillway_emulator_access(stream, at, bytes, write ? 1 : 0, name);
  }

  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle handles_[2] = {};
  cudaStream_t in_ = make_stream();
  cudaStream_t out_ = make_stream();
};

TEST_F(ViewsTest, BytesWrittenAtOneAddressAreReadAtTheOther) {
  unit(3)[5] = 42;
  unit(1)[7] = 43;

  EXPECT_EQ(unit(0)[5], 42);
  EXPECT_EQ(unit(2)[7], 43);
  EXPECT_EQ(spillway_emulator_used(0), 2 * kUnit);
}

TEST_F(ViewsTest, UnorderedAccessesThroughTwoAddressesAreReported) {
  operation(in_, unit(0), kPage, true, "aten::add");
  operation(out_, unit(3), kPage, false, "aten::mul");

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"aten::mul\""), std::string::npos);
}

TEST_F(ViewsTest, WhereTheFirstMappingEndsAccessesThroughItStayKnown) {
  operation(in_, unit(0) + kPage, kPage, true, "aten::add");
  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  operation(out_, unit(3), kPage, false, "aten::mul");
  EXPECT_EQ(reports().size(), 0U);
  operation(out_, unit(3) + kPage, kPage, false, "aten::mul");

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"aten::add\""), std::string::npos);
  ASSERT_EQ(map(0, 0), CUDA_SUCCESS);
}

TEST_F(ViewsTest, AtAnAddressOfAnotherMemoryNowTheyAreNotKnown) {
  operation(in_, unit(0), kPage, true, "aten::add");
  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(map(0, 1), CUDA_SUCCESS);
  operation(out_, unit(0), kPage, false, "aten::mul");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(ViewsTest, OnlyTheEndOfTheLastMappingIsAUseOfTheMemory) {
  operation(in_, unit(0), kPage, true, "aten::add");
  ASSERT_EQ(CU(MemUnmap, 10020)(base_, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(reports().size(), 0U);
  ASSERT_EQ(CU(MemUnmap, 10020)(base_ + 3 * kUnit, kUnit), CUDA_SUCCESS);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"cuMemUnmap\""), std::string::npos);
  ASSERT_EQ(map(0, 0), CUDA_SUCCESS);
  ASSERT_EQ(map(3, 0), CUDA_SUCCESS);
}

TEST_F(ViewsTest, OrderedOnesAreNot) {
  operation(in_, unit(0), kPage, true, "aten::add");
  order(in_, out_);
  operation(out_, unit(3), kPage, false, "aten::mul");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(ViewsTest, AnAccessAcrossTwoMappingsIsSeenInBoth) {
  operation(in_, unit(1) + kUnit - kPage, kPage, true, "aten::add");
  operation(in_, unit(0), kPage, true, "aten::sub");
  operation(out_, unit(2) + kUnit - kPage, 2 * kPage, false, "aten::mul");

  EXPECT_EQ(reports().size(), 2U);  // of what add wrote, and of what sub wrote
}

TEST_F(ViewsTest, OtherMemoryIsNotTakenForIt) {
  operation(in_, unit(0), kPage, true, "aten::add");
  operation(out_, unit(2), kPage, true, "aten::mul");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(ViewsTest, EndingAViewDoesNotTouchItsMemory) {
  operation(in_, unit(0), kPage, true, "aten::add");
  ASSERT_EQ(CU(MemUnmap, 10020)(base_ + 3 * kUnit, kUnit), CUDA_SUCCESS);
  operation(out_, unit(0), kPage, false, "aten::mul");

  EXPECT_EQ(reports().size(), 1U);  // and no more
}

}  // namespace
