// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

namespace {

using emulated::kUnit;

class PeersTest : public emulated::Test {
 protected:
  void SetUp() override {
    emulated::Test::SetUp();
    ASSERT_EQ(CU(DevicePrimaryCtxRetain, 7000)(&own_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(DevicePrimaryCtxRetain, 7000)(&other_, 1), CUDA_SUCCESS);
  }

  void TearDown() override { CU(CtxDisablePeerAccess, 4000)(other_); }

  CUcontext own_ = nullptr;
  CUcontext other_ = nullptr;
};

TEST_F(PeersTest, EveryOtherDeviceIsAPeer) {
  int can = -1;

  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 1, 1), cudaSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 2), cudaErrorInvalidDevice);
}

TEST_F(PeersTest, PeerAccessCanBeEnabledOnceAndDisabledOnce) {
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST_F(PeersTest, ADeviceIsNoPeerOfItselfNorOfWhatIsNotThere) {
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(-1, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
}

TEST_F(PeersTest, TheDriverRefusesItsOwnAndUnknownContexts) {
  EXPECT_EQ(CU(CtxEnablePeerAccess, 4000)(own_, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(CtxEnablePeerAccess, 4000)(nullptr, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(CtxEnablePeerAccess, 4000)(other_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(CtxDisablePeerAccess, 4000)(other_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST_F(PeersTest, LinksHaveAttributes) {
  int value = -1;

  EXPECT_EQ(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1), cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0),
            cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(nullptr, cudaDevP2PAttrAccessSupported, 0, 1),
            cudaErrorInvalidValue);
}

TEST_F(PeersTest, CopiesBetweenDevicesNeedNoPeerAccess) {
  const emulated::DeviceBytes here(kUnit);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const emulated::DeviceBytes there(kUnit);
  ASSERT_EQ(cudaMemset(there.at(), 9, kUnit), cudaSuccess);
  char byte = 0;

  EXPECT_EQ(cudaMemcpyPeerAsync(here.at(), 0, there.at(), 1, kUnit, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&byte, here.at() + kUnit - 1, 1, cudaMemcpyDeviceToHost), cudaSuccess);

  EXPECT_EQ(byte, 9);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

}  // namespace
