// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/residency/residency.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"
#include "tests/support/value_of.h"

#include <atomic>
#include <utility>

namespace spillway {

/// All stages of one emulated device up to residency, and the operations of a program on it.
class ResidencyFixture : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    make_heap({Bytes{}, &offloaded_});
    arena_ = std::make_unique<HostArena>(device_, Bytes{});
    copies_ = CopyEngine::create(device_).value();
    make_residency();
    set_bytes_ =
        reinterpret_cast<SetBytes>(spillway_emulator_proc_address("cuMemsetD8Async", 3020));
    ASSERT_NE(set_bytes_, nullptr);
  }

  void TearDown() override {
    synchronize();
    arena_.reset();
    for (const driver::DevicePtr at : std::exchange(allocated_, {}))
      heap_->free(at);
    heap_->trim_sync();  // it holds no fence of the copy engine's after this
    copies_.reset();
    HeapTest::TearDown();
  }

  void make_residency() {
    residency_ = std::make_unique<Residency>(*heap_, *arena_, *copies_, offloaded_);
  }

  void synchronize() {
    for (const CUstream stream : streams_)
      table_.StreamSynchronize(stream);
    copies_->drain_sync();
  }

  void fill(driver::DevicePtr at, int value, driver::Stream stream) {
    ASSERT_EQ(
        set_bytes_(at.address(), static_cast<unsigned char>(value), kSize.count(), stream.handle()),
        CUDA_SUCCESS);
  }

  /// The value that fills the block, as an operation on `stream` sees it; -1 where it is not the
  /// same everywhere.
  int read(driver::DevicePtr at, driver::Stream stream) {
    std::vector<std::byte> bytes(kSize.count());
    EXPECT_EQ(table_.MemcpyDtoHAsync(bytes.data(), at.address(), bytes.size(), stream.handle()),
              CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(stream.handle()), CUDA_SUCCESS);
    return value_of(bytes);
  }

  Stash stash(driver::DevicePtr at, driver::Stream producer) {
    Result<Stash> made = residency_->stash(at, kSize, producer);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : Stash{};
  }

  driver::Fence fetch(Stash& from, driver::DevicePtr to, driver::Stream consumer) {
    const auto fence = residency_->fetch(from, to, consumer);
    EXPECT_TRUE(fence.ok()) << fence.status().message();
    return fence.ok() ? fence.value() : driver::Fence{};
  }

  static constexpr Bytes kSize{(1U << 20U) + 1};

  using SetBytes = CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream);
  SetBytes set_bytes_ = nullptr;
  std::atomic<std::uint64_t> offloaded_{0};
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<CopyEngine> copies_;
  std::unique_ptr<Residency> residency_;
};

}  // namespace spillway
