// SPDX-License-Identifier: Apache-2.0
// Runs under both schedules: the order checker must see what data cannot show.
#include "tests/emulator/emulated.h"

#include <sys/mman.h>

namespace {

using namespace emulated;

/// Two streams, a device block, and page-locked memory.
class OrderCheckerTest : public emulated::Test {
 protected:
  void TearDown() override { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }

  static void operation(cudaStream_t stream, const void* at, bool write, const char* name) {
    spillway_emulator_drain(stream);
    spillway_emulator_begin(stream);
    spillway_emulator_access(stream, at, kPage, write ? 1 : 0, name);
  }

  const DeviceBytes block_{kPage};
  const LockedBytes slot_{kPage, 1};
  const LockedBytes target_{kPage, 0};
  cudaStream_t in_ = make_stream();
  cudaStream_t out_ = make_stream();
};

TEST_F(OrderCheckerTest, ReadAfterWriteWithoutAWaitIsReported) {
  copy(block_.at(), slot_.at(), kPage, in_);
  copy(target_.at(), block_.at(), kPage, out_);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_EQ(
      reports()[0].find("spillway-check: unordered read after write: \"memcpy device to host\""),
      0U);
}

TEST_F(OrderCheckerTest, AReportNamesBothOperationsStreamsAddressAndBytes) {
  operation(in_, block_.at(), true, "aten::add");
  operation(out_, block_.at(), false, "aten::mul");
  char place[64];
  std::snprintf(place, sizeof place, "4096 bytes at %p", static_cast<void*>(block_.at()));

  ASSERT_EQ(reports().size(), 1U);
  const std::string text = reports()[0];
  EXPECT_NE(text.find("\"aten::mul\" on stream"), std::string::npos) << text;
  EXPECT_NE(text.find("not ordered after \"aten::add\" on stream"), std::string::npos) << text;
  EXPECT_NE(text.find(place), std::string::npos) << text;
}

TEST_F(OrderCheckerTest, AReportNamesTheTagThatEachOperationWasQueuedUnder) {
  spillway_emulator_tag(std::string("layer.3").c_str());  // gone at once: it is copied
  operation(in_, block_.at(), true, "aten::add");
  spillway_emulator_tag(nullptr);
  operation(out_, block_.at(), false, "aten::mul");

  ASSERT_EQ(reports().size(), 1U);
  const std::string text = reports()[0];
  const std::size_t second = text.find("not ordered after \"aten::add\"");
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_NE(text.find(", tag layer.3", second), std::string::npos) << text;
  EXPECT_EQ(text.find(", tag "), text.find(", tag layer.3", second)) << text;
}

TEST_F(OrderCheckerTest, ReadAfterWriteWithAWaitIsSilent) {
  copy(block_.at(), slot_.at(), kPage, in_);
  order(in_, out_);
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, WriteAfterReadWithoutAWaitIsReportedThoughNoScheduleShowsIt) {
  operation(in_, block_.at(), false, "aten::mul");
  operation(out_, block_.at(), true, "aten::fill_");

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("unordered write after read"), std::string::npos);
}

TEST_F(OrderCheckerTest, WriteAfterReadWithAWaitIsSilent) {
  operation(in_, block_.at(), false, "aten::mul");
  order(in_, out_);
  operation(out_, block_.at(), true, "aten::fill_");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, EveryReaderMustBeOrderedBeforeAWrite) {
  cudaStream_t third = make_stream();
  operation(in_, block_.at(), false, "first reader");
  operation(third, block_.at(), false, "second reader");
  order(third, out_);
  operation(out_, block_.at(), true, "writer");

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("first reader"), std::string::npos);
}

TEST_F(OrderCheckerTest, WriteAfterWriteWithoutAWaitIsReported) {
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, kPage, in_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 2, kPage, out_), cudaSuccess);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("unordered write after write: \"memset\""), std::string::npos);
}

TEST_F(OrderCheckerTest, WriteAfterWriteWithAWaitIsSilent) {
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, kPage, in_), cudaSuccess);
  order(in_, out_);
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 2, kPage, out_), cudaSuccess);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, TwoReadersNeedNoOrder) {
  operation(in_, block_.at(), false, "one");
  operation(out_, block_.at(), false, "other");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, ReusingAHostSlotWithoutAWaitIsReported) {
  const DeviceBytes other(kPage);
  copy(block_.at(), slot_.at(), kPage, in_);  // the slot's last reader
  copy(slot_.at(), other.at(), kPage, out_);  // the slot's next owner

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("unordered write after read: \"memcpy device to host\""),
            std::string::npos);
}

TEST_F(OrderCheckerTest, ReusingAHostSlotBehindItsLastReaderIsSilent) {
  const DeviceBytes other(kPage);
  copy(block_.at(), slot_.at(), kPage, in_);
  order(in_, out_);
  copy(slot_.at(), other.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, NeighboringBytesAreNotTheSameBytes) {
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, 100, in_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(block_.at() + 100, 2, 100, out_), cudaSuccess);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, AnOverlapOfOneByteIsReportedWithItsBytes) {
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, 100, in_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(block_.at() + 99, 2, 100, out_), cudaSuccess);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find(": 1 bytes at"), std::string::npos) << reports()[0];
}

TEST_F(OrderCheckerTest, AHostThatHasWaitedOrdersWhatItQueuesNext) {
  copy(block_.at(), slot_.at(), kPage, in_);
  ASSERT_EQ(cudaStreamSynchronize(in_), cudaSuccess);
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, ASuccessfulQueryOrdersLikeAWait) {
  cudaEvent_t event = make_event();
  copy(block_.at(), slot_.at(), kPage, in_);
  ASSERT_EQ(cudaEventRecord(event, in_), cudaSuccess);
  while (cudaEventQuery(event) != cudaSuccess) {
  }
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, AnEventOrdersOnlyWhatCameBeforeItsRecord) {
  cudaEvent_t event = make_event();
  ASSERT_EQ(cudaEventRecord(event, in_), cudaSuccess);
  copy(block_.at(), slot_.at(), kPage, in_);
  ASSERT_EQ(cudaStreamWaitEvent(out_, event, 0), cudaSuccess);
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderCheckerTest, AWaitKeepsTheRecordThatItWasMadeWith) {
  cudaEvent_t event = make_event();
  ASSERT_EQ(cudaEventRecord(event, in_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(out_, event, 0), cudaSuccess);
  copy(block_.at(), slot_.at(), kPage, in_);
  ASSERT_EQ(cudaEventRecord(event, in_), cudaSuccess);  // after the wait: orders nothing for it
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderCheckerTest, OrderIsCarriedThroughAThirdStream) {
  cudaStream_t third = make_stream();
  copy(block_.at(), slot_.at(), kPage, in_);
  order(in_, third);
  order(third, out_);
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, TheDefaultStreamIsNoBarrierForNonBlockingStreams) {
  copy(block_.at(), slot_.at(), kPage, in_);
  copy(target_.at(), block_.at(), kPage, nullptr);

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderCheckerTest, TheDefaultStreamOrdersBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  copy(block_.at(), slot_.at(), kPage, blocking);
  copy(target_.at(), block_.at(), kPage, nullptr);
  copy(block_.at(), slot_.at(), kPage, blocking);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, AnOperationThatBeganAgainAfterAWaitIsOrderedByIt) {
  operation(in_, block_.at(), false, "last user");
  spillway_emulator_begin(out_);  // the operation begins, and allocates: the allocator waits
  order(in_, out_);
  spillway_emulator_begin(out_);
  spillway_emulator_access(out_, block_.at(), kPage, 1, "aten::add");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, AHostReadBeforeTheCopyIsKnownToBeDoneIsReported) {
  copy(target_.at(), block_.at(), kPage, out_);
  spillway_emulator_host_access(target_.at(), kPage, 0, "aten::sum");

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"aten::sum\" on the host"), std::string::npos);
}

TEST_F(OrderCheckerTest, AHostReadAfterASynchronizeIsSilent) {
  copy(target_.at(), block_.at(), kPage, out_);
  ASSERT_EQ(cudaStreamSynchronize(out_), cudaSuccess);
  spillway_emulator_host_access(target_.at(), kPage, 0, "aten::sum");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, UnregisteringMemoryThatACopyMayStillReadIsReported) {
  void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(cudaHostRegister(memory, kPage, 0), cudaSuccess);
  spillway_emulator_begin(in_);
  spillway_emulator_access(in_, memory, kPage, 0, "memcpy host to device");

  ASSERT_EQ(cudaHostUnregister(memory), cudaSuccess);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"cuMemHostUnregister\" on the host"), std::string::npos);
  munmap(memory, kPage);
}

/// One unit of mapped device memory.
CUdeviceptr map_unit() {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = emulated::memory_of(0);
  const CUmemAccessDesc access = emulated::access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(CU(MemAddressReserve, 10020)(&at, emulated::kUnit, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemCreate, 10020)(&handle, emulated::kUnit, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemMap, 10020)(at, emulated::kUnit, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemSetAccess, 10020)(at, emulated::kUnit, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
  return at;
}

TEST_F(OrderCheckerTest, UnmappingIsNoBarrierForWorkThatTheHostDoesNotKnowToBeDone) {
  const CUdeviceptr at = map_unit();
  operation(in_, reinterpret_cast<const void*>(at), false, "aten::mul");

  ASSERT_EQ(CU(MemUnmap, 10020)(at, emulated::kUnit), CUDA_SUCCESS);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"cuMemUnmap\" on the host"), std::string::npos);
}

TEST_F(OrderCheckerTest, UnmappingAfterASynchronizeIsSilent) {
  const CUdeviceptr at = map_unit();
  operation(in_, reinterpret_cast<const void*>(at), true, "aten::mul");
  ASSERT_EQ(cudaStreamSynchronize(in_), cudaSuccess);

  ASSERT_EQ(CU(MemUnmap, 10020)(at, emulated::kUnit), CUDA_SUCCESS);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, FreedMemoryIsForgotten) {
  void* first = nullptr;
  ASSERT_EQ(cudaMallocAsync(&first, kPage, in_), cudaSuccess);
  operation(in_, first, true, "aten::add");
  ASSERT_EQ(cudaFreeAsync(first, in_), cudaSuccess);
  spillway_emulator_drain(in_);

  operation(out_, first, true, "the address's next life");

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderCheckerTest, FreeingInOrderWhileAnotherStreamUsesTheMemoryIsReported) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, kPage, in_), cudaSuccess);
  operation(out_, memory, false, "aten::mul");
  ASSERT_EQ(cudaFreeAsync(memory, in_), cudaSuccess);

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderCheckerTest, OnlyTheBytesThatBothTouchAreReported) {
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, kPage, in_), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(block_.at() + 16, 64, 2, 8, 10, out_), cudaSuccess);
  char place[64];
  std::snprintf(place, sizeof place, ": 80 bytes at %p\n", static_cast<void*>(block_.at() + 16));

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find(place), std::string::npos) << reports()[0];
}

TEST_F(OrderCheckerTest, RowsThatAreWrittenOverWhatIsReadAreReported) {
  operation(in_, block_.at(), false, "reader");
  ASSERT_EQ(cudaMemset2DAsync(block_.at(), 64, 2, 8, 10, out_), cudaSuccess);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("unordered write after read"), std::string::npos) << reports()[0];
}

TEST_F(OrderCheckerTest, AStreamsEarlierColumnsAreNotForgottenForItsLater) {
  ASSERT_EQ(cudaMemset2DAsync(block_.at(), 64, 1, 8, 10, in_), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(block_.at() + 8, 64, 1, 8, 10, in_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(block_.at() + 64, 2, 8, out_), cudaSuccess);  // within both extents

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderCheckerTest, AnEventOfTheDefaultStreamComesAfterBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  copy(block_.at(), slot_.at(), kPage, blocking);
  order(nullptr, out_);
  copy(target_.at(), block_.at(), kPage, out_);

  EXPECT_EQ(reports(), std::vector<std::string>());
}

TEST_F(OrderCheckerTest, ReportsAreCountedAndCanBeCleared) {
  const auto before = count("unordered");
  operation(in_, block_.at(), true, "one");
  operation(out_, block_.at(), true, "other");

  EXPECT_EQ(count("unordered"), before + 1);
  spillway_emulator_clear_races();
  EXPECT_EQ(spillway_emulator_race(0), nullptr);
}

}  // namespace
