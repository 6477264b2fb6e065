// SPDX-License-Identifier: Apache-2.0
// Memory of this process, opened again by itself: what another process would do.
#include "allocator/base/process.h"
#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/sharing/memory_handle.h"
#include "allocator/sharing/process.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

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

class SharingTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (HasFatalFailure()) return;
    exports_ = std::make_unique<Exports>(*heap_);
    imports_ = std::make_unique<Imports>(device_);
  }

  SharedPlace shared(driver::DevicePtr at) {
    auto place = exports_->share(at);
    EXPECT_TRUE(place.ok()) << place.status().message();
    return place.ok() ? place.value() : SharedPlace{};
  }

  std::shared_ptr<void> opened(const std::string& handle) {
    auto memory = imports_->open(handle);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return memory.ok() ? memory.value() : nullptr;
  }

  void release(driver::DevicePtr at) {
    exports_->freed(at);
    free(at);
  }

  void write(const void* at, int value) {
    ASSERT_EQ(
        table_.MemcpyHtoDAsync(driver::DevicePtr(at).address(), &value, sizeof value, nullptr),
        CUDA_SUCCESS);
    ASSERT_EQ(table_.StreamSynchronize(nullptr), CUDA_SUCCESS);
  }

  int read(const void* at) {
    int value = 0;
    EXPECT_EQ(
        table_.MemcpyDtoHAsync(&value, driver::DevicePtr(at).address(), sizeof value, nullptr),
        CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(nullptr), CUDA_SUCCESS);
    return value;
  }

  static const char* at(const std::shared_ptr<void>& memory, Bytes offset) {
    return static_cast<const char*>(memory.get()) + offset.count();
  }

  /// The handle with one thing changed.
  static std::string forged(const std::string& handle,
                            const std::function<void(MemoryHandle&)>& how) {
    MemoryHandle read = MemoryHandle::read(handle).value();
    how(read);
    return read.bytes();
  }

  std::unique_ptr<Exports> exports_;
  std::unique_ptr<Imports> imports_;
};

TEST_F(SharingTest, WhatOneSideWritesTheOtherReads) {
  const driver::DevicePtr block = allocate(7_MiB);
  const SharedPlace place = shared(block);
  const auto memory = opened(place.handle);

  write(block.raw(), 42);
  EXPECT_EQ(read(at(memory, place.offset)), 42);
  write(at(memory, place.offset), 43);
  EXPECT_EQ(read(block.raw()), 43);
}

TEST_F(SharingTest, ABlockInSeveralPiecesIsMappedInOne) {
  const driver::DevicePtr block = allocate(7_MiB);
  const SharedPlace place = shared(block);
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
  const SharedPlace place = shared(block);

  EXPECT_EQ(place.offset, 512_KiB);
  EXPECT_EQ(read(at(opened(place.handle), place.offset)), 5);
}

TEST_F(SharingTest, AllAddressesOfABlockHaveOneHandleThatIsMappedOnce) {
  const driver::DevicePtr block = allocate(4_MiB);
  const SharedPlace begin = shared(block);
  const SharedPlace inside = shared(block + 3_MiB);
  const auto first = opened(begin.handle);
  const auto second = opened(inside.handle);

  EXPECT_EQ(begin.handle, inside.handle);
  EXPECT_EQ(inside.offset, begin.offset + 3_MiB);
  EXPECT_EQ(first.get(), second.get());
}

TEST_F(SharingTest, TheLastOwnerUnmaps) {
  const SharedPlace place = shared(allocate(4_MiB));
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
  const SharedPlace place = shared(block);
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

TEST(OtherProcess, ItsStartDistinguishesItFromAProcessWithTheSameNumber) {
  const auto start = start_of(getpid());
  ASSERT_TRUE(start.has_value());

  EXPECT_TRUE(OtherProcess::open(getpid(), *start).ok());
  EXPECT_EQ(OtherProcess::open(getpid(), *start + 1).status().code(), Code::kNotReady);
}

/// From here on this thread may not take files from other processes, as without the right to trace
/// them. False where the machine does not let a thread give up a system call.
bool give_up_taking_files() {
  constexpr unsigned kPidfdGetfd = 438;
  std::array<sock_filter, 4> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPidfdGetfd, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{};
  filter.len = program.size();
  filter.filter = program.data();
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(SharingTest, WhereFilesMayNotBeTakenTheErrorSaysWhatToAllow) {
  const SharedPlace place = shared(allocate(4_MiB));
  bool given_up = false;
  Status status;

  std::thread([&] {
    given_up = give_up_taking_files();
    if (given_up) status = imports_->open(place.handle).status();
  }).join();

  if (!given_up) GTEST_SKIP() << "this machine lets no thread give up a system call";
  EXPECT_EQ(status.code(), Code::kNotReady);
  EXPECT_NE(status.detail().find("EPERM"), std::string::npos) << status.detail();
  EXPECT_NE(status.detail().find("kernel.yama.ptrace_scope=0"), std::string::npos);
  EXPECT_NE(status.detail().find("SYS_PTRACE"), std::string::npos);
}

/// The devices that were let into memory at `at`, in the order of the calls.
struct Access {
  inline static CUdeviceptr at = 0;
  inline static std::vector<int> devices;
  inline static CUresult answer = CUDA_SUCCESS;

  static CUresult set(CUdeviceptr where, size_t size, const CUmemAccessDesc* access, size_t count) {
    if (where != at) return driver::api().value()->MemSetAccess(where, size, access, count);
    for (size_t each = 0; each < count; ++each)
      devices.push_back(access[each].location.id);
    return answer;
  }
};

TEST_F(SharingTest, APeerReachesWhatWasOpenedBeforeAndIsWaitedForAtTheEnd) {
  auto memory = opened(shared(allocate(4_MiB)).handle);
  const driver::Device peer{&table_, DeviceId{1}, device_.context};
  Access::at = driver::DevicePtr(memory.get()).address();
  Access::devices.clear();
  Access::answer = CUDA_SUCCESS;
  table_.MemSetAccess = Access::set;

  EXPECT_TRUE(imports_->enable_peer(peer).ok());
  EXPECT_TRUE(imports_->enable_peer(peer).ok());

  EXPECT_EQ(Access::devices, std::vector{1});
  const auto syncs = driver::counters().host_syncs;
  memory.reset();
  EXPECT_EQ(driver::counters().host_syncs, syncs + 2);
}

TEST_F(SharingTest, APeerThatCannotReachWhatIsOpenIsNone) {
  const auto memory = opened(shared(allocate(4_MiB)).handle);
  const driver::Device peer{&table_, DeviceId{1}, device_.context};
  Access::at = driver::DevicePtr(memory.get()).address();
  Access::devices.clear();
  Access::answer = CUDA_ERROR_UNKNOWN;
  table_.MemSetAccess = Access::set;

  EXPECT_EQ(imports_->enable_peer(peer).code(), Code::kDriver);

  Access::answer = CUDA_SUCCESS;
  EXPECT_TRUE(imports_->enable_peer(peer).ok());
  EXPECT_EQ(Access::devices, (std::vector{1, 1}));
}

}  // namespace
}  // namespace spillway
