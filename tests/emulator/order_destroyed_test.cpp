// SPDX-License-Identifier: Apache-2.0
// A stream's end is no order: what it did is neither its successor's nor done.
#include "tests/emulator/emulated.h"

#include <set>

namespace {

using namespace emulated;

cudaStream_t make_blocking() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  return stream;
}

class OrderDestroyedTest : public emulated::Test {
 protected:
  void TearDown() override { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }

  void fill(cudaStream_t stream) const {
    ASSERT_EQ(cudaMemsetAsync(block_.at(), 1, kBytes, stream), cudaSuccess);
  }

  const DeviceBytes block_{kBytes};
};

TEST_F(OrderDestroyedTest, TheNextStreamIsNotOrderedBehindADestroyedOnesWork) {
  cudaStream_t first = make_stream();
  fill(first);
  ASSERT_EQ(cudaStreamDestroy(first), cudaSuccess);
  fill(make_stream());

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderDestroyedTest, TheNextStreamIsNotOrderedWithTheDefaultStreamBecauseTheOldOneWas) {
  cudaStream_t blocking = make_blocking();
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  fill(make_stream());
  fill(nullptr);

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderDestroyedTest, TheNextStreamDoesNotKnowWhatADestroyedOneHadWaitedFor) {
  cudaStream_t producer = make_stream();
  fill(producer);
  cudaStream_t waiter = make_stream();
  order(producer, waiter);
  ASSERT_EQ(cudaStreamDestroy(waiter), cudaSuccess);
  fill(make_stream());

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderDestroyedTest, TheDefaultStreamComesAfterADestroyedBlockingStreamsWork) {
  cudaStream_t blocking = make_blocking();
  fill(blocking);
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(make_stream()), cudaSuccess);
  fill(nullptr);

  EXPECT_EQ(reports(), std::vector<std::string>());
}

TEST_F(OrderDestroyedTest, AnotherBlockingStreamDoesNot) {
  cudaStream_t blocking = make_blocking();
  fill(blocking);
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  fill(make_blocking());

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderDestroyedTest, AWaitForTheDeviceCoversDestroyedStreams) {
  cudaStream_t stream = make_stream();
  fill(stream);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  fill(make_stream());

  EXPECT_EQ(reports(), std::vector<std::string>());
}

TEST_F(OrderDestroyedTest, AnEventOutlivesItsStream) {
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  fill(stream);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(cudaStreamDestroy(make_stream()), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  fill(make_stream());

  EXPECT_EQ(reports(), std::vector<std::string>());
}

TEST_F(OrderDestroyedTest, TenThousandDestroyedStreamsAreGone) {
  std::set<cudaStream_t> handles;
  for (int i = 0; i < 10000; ++i) {
    cudaStream_t stream = make_blocking();
    handles.insert(stream);
    fill(stream);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those keep freed memory back
  EXPECT_LT(handles.size(), 1000U);  // of streams that are kept, none is the same
#endif
  fill(make_stream());
  fill(make_stream());
  EXPECT_EQ(reports().size(), 1U);  // their numbers still distinguish streams
}

}  // namespace
