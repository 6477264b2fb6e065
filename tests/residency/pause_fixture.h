// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/residency/pause.h"
#include "tests/residency/residency_fixture.h"

#include <array>

namespace spillway {

/// Blocks under tags, and moves of them as the runtime makes them.
class PauseManagerTest : public ResidencyFixture {
 protected:
  void SetUp() override {
    ResidencyFixture::SetUp();
    if (HasFatalFailure()) return;
    make_pauses();
  }

  void TearDown() override {
    pauses_.reset();
    ResidencyFixture::TearDown();
    spillway_emulator_fault(nullptr);
    EXPECT_EQ(spillway_emulator_count("unordered"), reports_);
  }

  void make_pauses() {
    pauses_ = std::make_unique<PauseManager>(*heap_, *arena_, *copies_, offloaded_);
  }

  /// A block of kSize under `tag` that work on its stream fills, late.
  driver::DevicePtr filled(TagId tag, int value, driver::Stream stream) {
    const driver::DevicePtr at = allocate(kSize, stream, tag);
    fill(at, value, stream);
    return at;
  }

  Status pause(TagId tag, Contents contents = Contents::kKept) {
    const std::array tags = {tag};
    auto blocks = pauses_->begin_pause(tags, contents);
    if (!blocks.ok()) return blocks.status();
    pauses_->finish_pause(std::move(blocks).value());
    return {};
  }

  Status resume(TagId tag) {
    const std::array tags = {tag};
    auto blocks = pauses_->begin_resume(tags);
    if (!blocks.ok()) return blocks.status();
    pauses_->finish_resume(std::move(blocks).value());
    return {};
  }

  void release(driver::DevicePtr at) {
    std::erase(allocated_, at);
    pauses_->freed(at);
    heap_->free(at);
  }

  [[nodiscard]] Bytes reserved() const { return heap_->stats().reserved; }

  static constexpr TagId kTag{7};
  static constexpr TagId kOther{8};
  std::unique_ptr<PauseManager> pauses_;
  const std::uint64_t reports_ = spillway_emulator_count("unordered");
};

}  // namespace spillway
