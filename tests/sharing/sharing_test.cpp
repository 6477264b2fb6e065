// SPDX-License-Identifier: Apache-2.0
// Memory of this process, opened again by itself: what another process would do.
#include "allocator/base/process.h"
#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/sharing/memory_handle.h"
#include "emulator/emulator.h"
#include "tests/sharing/sharing_fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

namespace spillway {
namespace {

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST_F(SharingTest, WhatOneSideWritesTheOtherReads) {
  const driver::DevicePtr block = allocate(7_MiB);
  const SharedBlock place = shared(block);
  const auto memory = opened(place.handle);

  write(block.raw(), 42);
  EXPECT_EQ(read(at(memory, place.offset)), 42);
  write(at(memory, place.offset), 43);
  EXPECT_EQ(read(block.raw()), 43);
}

TEST_F(SharingTest, ABlockInSeveralPiecesIsMappedInOne) {
  const driver::DevicePtr block = allocate(7_MiB);
  const SharedBlock place = shared(block);
  ASSERT_GT(MemoryHandle::read(place.handle).value().pieces.size(), 1U);
  const auto memory = opened(place.handle);

  for (std::uint64_t i = 0; i < 7; ++i)
    write((block + Bytes{i << 20U}).raw(), static_cast<int>(i) + 1);
  for (std::uint64_t i = 0; i < 7; ++i)
    EXPECT_EQ(read(at(memory, place.offset + Bytes{i << 20U})), static_cast<int>(i) + 1);
}

TEST_F(SharingTest, ABlockInTheMiddleOfAChunkHasAnOffset) {
  allocate(512_KiB);
  const driver::DevicePtr block = allocate(512_KiB);
  write(block.raw(), 5);
  const SharedBlock place = shared(block);

  EXPECT_EQ(place.offset, 512_KiB);
  EXPECT_EQ(read(at(opened(place.handle), place.offset)), 5);
}

TEST_F(SharingTest, AllAddressesOfABlockHaveOneHandleThatIsMappedOnce) {
  const driver::DevicePtr block = allocate(4_MiB);
  const SharedBlock begin = shared(block);
  const SharedBlock inside = shared(block + 3_MiB);
  const auto first = opened(begin.handle);
  const auto second = opened(inside.handle);

  EXPECT_EQ(begin.handle, inside.handle);
  EXPECT_EQ(inside.offset, begin.offset + 3_MiB);
  EXPECT_EQ(first.get(), second.get());
}

TEST_F(SharingTest, TheLastOwnerUnmaps) {
  const SharedBlock place = shared(allocate(4_MiB));
  const auto unmapped = [] {
    return spillway_emulator_count("cuMemAddressFree");
  };
  const auto before = unmapped();
  auto first = opened(place.handle);
  auto second = opened(place.handle);

  first.reset();
  EXPECT_EQ(unmapped(), before);
  second.reset();
  EXPECT_EQ(unmapped(), before + 1);
  EXPECT_NE(opened(place.handle), nullptr);
}

TEST_F(SharingTest, ReleasingWaitsForTheDeviceAndCountsIt) {
  auto memory = opened(shared(allocate(4_MiB)).handle);
  const auto syncs = spillway_emulator_count("cuCtxSynchronize");
  const auto counted = driver::counters().host_syncs;

  memory.reset();

  EXPECT_EQ(spillway_emulator_count("cuCtxSynchronize"), syncs + 1);
  EXPECT_EQ(driver::counters().host_syncs, counted + 1);
}

TEST_F(SharingTest, WhatCannotBeWaitedForStaysMapped) {
  auto memory = opened(shared(allocate(4_MiB)).handle);
  const auto unmaps = spillway_emulator_count("cuMemUnmap");
  const Fault<&driver::Api::CtxSynchronize> fault(table_, 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

  memory.reset();

  EXPECT_EQ(spillway_emulator_count("cuMemUnmap"), unmaps);
}

TEST_F(SharingTest, TheMemoryOutlivesTheSendersBlock) {
  const driver::DevicePtr block = allocate(4_MiB);
  const SharedBlock place = shared(block);
  const auto memory = opened(place.handle);
  write(block.raw(), 6);

  release(block);
  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, Bytes{});
  EXPECT_EQ(read(at(memory, place.offset)), 6);
}

TEST_F(SharingTest, AFreedBlocksFilesAreClosed) {
  release([&] {
    const driver::DevicePtr block = allocate(7_MiB);
    opened(shared(block).handle);
    return block;
  }());
  const auto before = open_files();

  for (int i = 0; i < 5; ++i) {
    const driver::DevicePtr block = allocate(7_MiB);
    opened(shared(block).handle);
    EXPECT_GT(open_files(), before);
    release(block);
    EXPECT_EQ(open_files(), before);
  }
}

TEST_F(SharingTest, AHandleOfAFreedBlockOpensNothing) {
  const driver::DevicePtr block = allocate(4_MiB);
  const std::string stale = shared(block).handle;
  release(block);
  // Its addresses and the numbers of its files go to another one.
  const driver::DevicePtr next = allocate(4_MiB);
  const std::string fresh = shared(next).handle;

  ASSERT_EQ(next, block);
  EXPECT_EQ(forged(stale,
                   [&](MemoryHandle& handle) {
                     handle.serial = MemoryHandle::read(fresh).value().serial;
                   }),
            fresh);
  EXPECT_EQ(imports_->open(stale).status().code(), Code::kNotReady);
  EXPECT_TRUE(imports_->open(fresh).ok());
}

TEST_F(SharingTest, ForgedHandlesAreRefused) {
  const std::string genuine = shared(allocate(4_MiB)).handle;
  const std::vector<std::function<void(MemoryHandle&)>> forgeries = {
      [](MemoryHandle& handle) { ++handle.serial; },
      [](MemoryHandle& handle) { ++handle.started; },
      [](MemoryHandle& handle) { handle.process = 0x7fffffff; },
      [](MemoryHandle& handle) { handle.process = 1; },
      [](MemoryHandle& handle) { handle.proof = 0; },
      [](MemoryHandle& handle) { handle.proof = 0x7fffffff; },
      [](MemoryHandle& handle) { handle.pieces[0].file = 0x7fffffff; },
      [](MemoryHandle& handle) { handle.pieces[0].file = handle.proof; },
      [](MemoryHandle& handle) { handle.pieces[0].size += 1_B; },
      [](MemoryHandle& handle) { handle.pieces.push_back(handle.pieces[0]); },
  };
  const auto files = open_files();

  for (std::size_t i = 0; i < forgeries.size(); ++i)
    EXPECT_EQ(imports_->open(forged(genuine, forgeries[i])).status().code(), Code::kNotReady) << i;
  EXPECT_EQ(open_files(), files);
  EXPECT_TRUE(imports_->open(genuine).ok());
}

TEST_F(SharingTest, WhateverDriverCallFailsNothingStaysMapped) {
  const std::string handle = shared(allocate(7_MiB)).handle;
  const auto count = [](const char* name) {
    return spillway_emulator_count(name);
  };
  const auto files = open_files();
  const auto refused = [&](auto make) {
    const auto mapped = count("cuMemMap") - count("cuMemUnmap");
    const auto reserved = count("cuMemAddressReserve") - count("cuMemAddressFree");
    const driver::Api whole = table_;
    make();
    const auto memory = imports_->open(handle);
    table_ = whole;
    EXPECT_EQ(memory.status().code(), Code::kDriver);
    EXPECT_EQ(count("cuMemMap") - count("cuMemUnmap"), mapped);
    EXPECT_EQ(count("cuMemAddressReserve") - count("cuMemAddressFree"), reserved);
    EXPECT_EQ(open_files(), files);
  };

  using driver::Api;
  refused([&] { Fault<&Api::MemAddressReserve>(table_, 1, CUDA_ERROR_UNKNOWN); });
  refused([&] { Fault<&Api::MemImportFromShareableHandle>(table_, 2, CUDA_ERROR_UNKNOWN); });
  refused([&] { Fault<&Api::MemMap>(table_, 2, CUDA_ERROR_UNKNOWN); });
  refused([&] { Fault<&Api::MemSetAccess>(table_, 1, CUDA_ERROR_UNKNOWN); });
  EXPECT_TRUE(imports_->open(handle).ok());
}

TEST_F(SharingTest, AnExportThatFailsLeavesTheBlockAsItWas) {
  const driver::DevicePtr block = allocate(7_MiB);
  const auto files = open_files();
  const Fault<&driver::Api::MemExportToShareableHandle> fault(table_, 2, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(exports_->share(block).status().code(), Code::kDriver);

  EXPECT_EQ(open_files(), files);
  EXPECT_FALSE(heap_->find(block).shared);
  EXPECT_TRUE(exports_->share(block).ok());
}

TEST_F(SharingTest, SmallBlocksAndForeignMemoryAreRefusedWithTheReason) {
  const auto small = exports_->share(allocate(128_KiB));
  EXPECT_EQ(small.status().code(), Code::kInvalidArgument);
  EXPECT_NE(small.status().detail().find("at most 128 KiB"), std::string::npos);
  EXPECT_TRUE(exports_->share(allocate(128_KiB + 1_B)).ok());

  EXPECT_EQ(exports_->share(driver::DevicePtr(&small)).status().code(), Code::kInvalidArgument);
  const driver::DevicePtr gone = allocate(4_MiB);
  free(gone);
  EXPECT_EQ(exports_->share(gone).status().code(), Code::kInvalidArgument);
}

TEST_F(SharingTest, WhereMemoryCannotBeFilesItWorksAndSharingIsRefused) {
  table_.DeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 0;
    return CUDA_SUCCESS;
  };
  make_heap({});
  Exports exports(*heap_);

  EXPECT_EQ(exports.share(allocate(4_MiB)).status().code(), Code::kInvalidArgument);
}

TEST_F(SharingTest, ASharedBlockIsNotEvictedUntilItIsFreed) {
  const std::array blocks = {allocate(4_MiB), allocate(4_MiB)};
  shared(blocks[1]);
  EXPECT_EQ(heap_->evict(blocks).status().code(), Code::kNotReady);
  EXPECT_EQ(heap_->stats().evicted, Bytes{});

  release(blocks[1]);
  const std::array again = {blocks[0], allocate(4_MiB)};
  ASSERT_EQ(again[1], blocks[1]);
  EXPECT_TRUE(heap_->evict(again).ok());
}

TEST_F(SharingTest, EvictedAndHeldBlocksAreNotShared) {
  constexpr TagId kTag{3};
  const std::array evicted = {allocate(4_MiB)};
  ASSERT_TRUE(heap_->evict(evicted).ok());
  EXPECT_EQ(exports_->share(evicted[0]).status().code(), Code::kNotReady);

  const driver::DevicePtr pinned = allocate(4_MiB, main_, kTag);
  ASSERT_EQ(heap_->pin_blocks({&kTag, 1}, false).size(), 1U);
  EXPECT_EQ(exports_->share(pinned).status().code(), Code::kNotReady);
  heap_->unpin_blocks({&pinned, 1});
  EXPECT_TRUE(exports_->share(pinned).ok());
}

TEST_F(SharingTest, WhatASharedBlockIsUnderHasNothingToGive) {
  constexpr TagId kTag{4};
  const driver::DevicePtr block = allocate(4_MiB, main_, kTag);
  allocate(4_MiB, main_, kTag);
  EXPECT_EQ(heap_->reclaimable({&kTag, 1}), 8_MiB);

  shared(block);

  EXPECT_EQ(heap_->reclaimable({&kTag, 1}), Bytes{});
}

}  // namespace
}  // namespace spillway
