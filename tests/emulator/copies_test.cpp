// SPDX-License-Identifier: Apache-2.0
// Copies and fills of every shape, under every schedule.
#include "tests/emulator/emulated.h"

#include <numeric>

namespace {

using namespace emulated;

class CopiesTest : public emulated::Test {};

std::string text(const char* at, std::size_t bytes) {
  std::string digits;
  for (std::size_t i = 0; i < bytes; ++i)
    digits += static_cast<char>('0' + at[i]);
  return digits;
}

TEST_F(CopiesTest, ACopyOnTheHostIsDoneWhenItsCallReturns) {
  const LockedBytes source(kBytes, 3);
  const LockedBytes target(kBytes, 0);
  const auto syncs = count("host_syncs");

  copy(target.at(), source.at(), kBytes, make_stream());

  EXPECT_EQ(target.at()[kBytes - 1], 3);
  EXPECT_EQ(count("host_syncs"), syncs + 1);
}

TEST_F(CopiesTest, ABlockingCopyWithinTheDeviceDoesNotWait) {
  const DeviceBytes one(kBytes);
  const DeviceBytes other(kBytes);
  const auto syncs = count("host_syncs");

  ASSERT_EQ(cudaMemcpy(one.at(), other.at(), kBytes, cudaMemcpyDefault), cudaSuccess);

  EXPECT_EQ(count("host_syncs"), syncs);
}

TEST_F(CopiesTest, BytesBetweenHostAndDeviceAreCountedByDirectionOnceTheyHaveGone) {
  const LockedBytes host(kBytes, 3);
  const DeviceBytes one(kBytes);
  const DeviceBytes other(kBytes);
  cudaStream_t stream = make_stream();
  const auto in = count("bytes_to_device");
  const auto out = count("bytes_to_host");

  copy(one.at(), host.at(), kBytes, stream);
  copy(other.at(), one.at(), kBytes, stream);
  copy(host.at(), other.at(), kBytes / 4, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(count("bytes_to_device"), in + kBytes);
  EXPECT_EQ(count("bytes_to_host"), out + kBytes / 4);
}

TEST_F(CopiesTest, RowsGoFromAnOffsetWithTheirPitches) {
  LockedBytes source(kBytes, 0);
  std::iota(source.at(), source.at() + 16, char{0});
  const DeviceBytes block(kBytes);
  const LockedBytes target(kBytes, 0);
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);
  CUDA_MEMCPY2D what{};
  what.srcMemoryType = CU_MEMORYTYPE_HOST;
  what.srcHost = source.at();
  what.srcPitch = 4;
  what.srcXInBytes = 1;
  what.srcY = 1;
  what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  what.dstDevice = address(block.at());
  what.dstPitch = 3;
  what.WidthInBytes = 2;
  what.Height = 2;

  ASSERT_EQ(CU(Memcpy2DAsync, 3020)(&what, stream), CUDA_SUCCESS);
  copy(target.at(), block.at(), 6, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(text(target.at(), 6), "5609:0");  // ':' follows '9'
}

TEST_F(CopiesTest, AWidthBeyondThePitchIsRefused) {
  const DeviceBytes block(kBytes);
  const LockedBytes locked(kBytes, 0);

  EXPECT_EQ(cudaMemcpy2D(block.at(), 4, locked.at(), 8, 5, 2, cudaMemcpyDefault),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(block.at(), 8, locked.at(), 4, 5, 2, cudaMemcpyDefault),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(block.at(), 4, 0, 5, 2), cudaErrorInvalidValue);
}

TEST_F(CopiesTest, FillsRepeatUnitsInRows) {
  const DeviceBytes block(kBytes);
  const LockedBytes seen(kBytes, 0);
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);
  ASSERT_EQ(CU(MemsetD2D16Async, 3020)(address(block.at()), 6, 0x0201, 2, 2, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemsetD16Async, 3020)(address(block.at() + 12), 0x0403, 1, stream), CUDA_SUCCESS);
  copy(seen.at(), block.at(), 16, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(text(seen.at(), 16), "1212001212003400");
}

TEST_F(CopiesTest, AFillThatIsNotAlignedToItsUnitIsRefused) {
  const DeviceBytes block(kBytes);

  EXPECT_EQ(CU(MemsetD16, 3020)(address(block.at() + 1), 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemsetD32, 3020)(address(block.at() + 2), 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemsetD2D32, 3020)(address(block.at()), 6, 0, 1, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopiesTest, CopiesGoBetweenDevices) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceBytes there(kBytes);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const DeviceBytes here(kBytes);
  const LockedBytes seen(kBytes, 0);
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemsetAsync(here.at(), 7, kBytes, stream), cudaSuccess);

  ASSERT_EQ(cudaMemcpyPeerAsync(there.at(), 1, here.at(), 0, kBytes, stream), cudaSuccess);
  copy(seen.at(), there.at(), kBytes, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(seen.at()[kBytes - 1], 7);
  EXPECT_EQ(cudaMemcpyPeerAsync(there.at(), 2, here.at(), 0, kBytes, stream),
            cudaErrorInvalidDevice);
}

class BatchTest : public CopiesTest {
 protected:
  cudaError_t batch(const std::vector<void*>& to,
                    const std::vector<const void*>& from,
                    cudaStream_t stream) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    const std::vector<std::size_t> bytes(to.size(), 8);
    std::size_t first = 0;
    return cudaMemcpyBatchAsync(
        to.data(), from.data(), bytes.data(), to.size(), &attributes, &first, 1, stream);
  }
};

TEST_F(BatchTest, ABatchCopiesAll) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  const LockedBytes seen(kBytes, 0);
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);

  ASSERT_EQ(batch({block.at(), block.at() + 16}, {source.at(), source.at() + 16}, stream),
            cudaSuccess);
  copy(seen.at(), block.at(), 24, stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(text(seen.at(), 24), "555555550000000055555555");
}

TEST_F(BatchTest, TheOlderAbiIsThereToo) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  CUdeviceptr to = address(block.at());
  CUdeviceptr from = address(source.at());
  std::size_t bytes = 0;
  std::size_t first = 0;
  std::size_t failed = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;

  EXPECT_EQ(CU(MemcpyBatchAsync, 12080)(
                &to, &from, &bytes, 1, &attributes, &first, 1, &failed, make_stream()),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, SIZE_MAX);
  bytes = 8;
  EXPECT_EQ(CU(MemcpyBatchAsync, 12080)(
                &to, &from, &bytes, 1, &attributes, &first, 1, &failed, make_stream()),
            CUDA_SUCCESS);
}

TEST_F(BatchTest, TheLegacyStreamAndMissingAttributesAreRefused) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  void* to = block.at();
  const void* from = source.at();
  const std::size_t bytes = 8;

  EXPECT_EQ(batch({block.at()}, {source.at()}, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyBatchAsync(&to, &from, &bytes, 1, nullptr, nullptr, 0, make_stream()),
            cudaErrorInvalidValue);
}

TEST_F(BatchTest, CopiesOfABatchThatTouchTheSameBytesAreReported) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);

  ASSERT_EQ(batch({block.at(), block.at() + 4}, {source.at(), source.at()}, make_stream()),
            cudaSuccess);

  ASSERT_EQ(emulated::reports().size(), 1U);
  EXPECT_NE(emulated::reports()[0].find("copy of a batch 2"), std::string::npos)
      << emulated::reports()[0];
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
