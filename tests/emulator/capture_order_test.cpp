// SPDX-License-Identifier: Apache-2.0
// The order checker and graphs: within one, and between a launch and everything else.
#include "tests/emulator/emulated.h"

namespace {

using namespace emulated;

class CaptureOrderTest : public emulated::Test {
 protected:
  cudaGraphExec_t finish() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    return executable;
  }

  /// Two branches that both copy to `block`, joined at the end; the second after the first where
  /// `ordered`.
  cudaGraphExec_t capture_branches(bool ordered) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    order(stream_, side_);
    copy(block_.at(), source_.at(), kBytes, side_);
    if (ordered) order(side_, stream_);
    copy(block_.at() + kBytes / 2, source_.at(), kBytes, stream_);
    order(side_, stream_);
    return finish();
  }

  const LockedBytes source_{kBytes, 5};
  const DeviceBytes block_{2 * kBytes};
  cudaStream_t stream_ = make_stream();
  cudaStream_t side_ = make_stream();
};

TEST_F(CaptureOrderTest, BranchesThatTouchTheSameBytesAreReportedWhenTheGraphIsMade) {
  capture_branches(false);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_EQ(reports()[0].rfind("spillway-check: unordered write after write", 0), 0U);
  EXPECT_NE(reports()[0].find("branch of a graph 2"), std::string::npos) << reports()[0];
}

TEST_F(CaptureOrderTest, BranchesThatAreOrderedAreNot) {
  capture_branches(true);

  EXPECT_EQ(reports(), std::vector<std::string>());
}

TEST_F(CaptureOrderTest, ALaunchThatNothingOrdersAfterAUseIsReported) {
  cudaGraphExec_t graph = capture_branches(true);
  copy(block_.at(), source_.at(), kBytes, side_);
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);

  ASSERT_FALSE(reports().empty());
  EXPECT_NE(reports()[0].find("write after write"), std::string::npos) << reports()[0];
}

TEST_F(CaptureOrderTest, ALaunchThatIsOrderedIsNot) {
  cudaGraphExec_t graph = capture_branches(true);
  copy(block_.at(), source_.at(), kBytes, side_);
  order(side_, stream_);
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(graph, side_), cudaSuccess);  // behind the last launch
  order(side_, stream_);
  copy(block_.at(), source_.at(), kBytes, stream_);

  EXPECT_EQ(reports(), std::vector<std::string>());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
