// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "emulator/emulator.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace spillway {

using namespace literals;

/// A Runtime of its own on the emulated device, and training steps as the saved-tensor engine
/// reports them.
class RuntimeTest : public testing::Test {
 protected:
  /// What one packed handle remembers.
  struct Saved {
    Decision decision;
    Bytes size;
    Stash stash;
    driver::DevicePtr kept;
  };

  void TearDown() override {
    if (DeviceRuntime* made = runtime_->devices().if_made(DeviceId{0})) {
      made->device().api->StreamSynchronize(kStream.handle());
    }
    runtime_.reset();
    EXPECT_EQ(spillway_emulator_count("unordered"), reports_);
  }

  void make_runtime(RuntimeOptions options) { runtime_ = std::make_unique<Runtime>(options); }

  void enter(TagId tag, double ratio) {
    const Status status = runtime_->step().enter_region(tag, Ratio::of(ratio).value());
    ASSERT_TRUE(status.ok()) << status.message();
  }

  /// Where the calling thread's work goes.
  static driver::Stream& stream() {
    thread_local driver::Stream here = kStream;
    return here;
  }

  /// Saves a storage and lets its owner free it.
  Saved save(TagId tag, Bytes size) {
    DeviceRuntime& device = *runtime_->device(DeviceId{0}).value();
    Saved saved{runtime_->step().decide(tag, DeviceId{0}, size), size, {}, {}};
    saved.kept = device.heap().allocate(size, stream(), tag).value();
    if (saved.decision.offload) leave(saved);
    runtime_->step().handle_made();
    return saved;
  }

  void leave(Saved& saved) {
    DeviceRuntime& device = *runtime_->device(DeviceId{0}).value();
    Result<Stash> stash = device.residency().stash(saved.kept, saved.size, stream());
    if (stash.ok()) {
      saved.stash = std::move(stash).value();
      device.heap().free(std::exchange(saved.kept, {}));
      runtime_->step().offloaded(saved.decision.site, saved.size, saved.size);
    } else {
      runtime_->step().on_event(StorageEvent::kNoHostMemory, saved.decision.site, saved.size);
    }
  }

  /// Unpacks it as the backward pass does, and lets the handle go.
  void use(Saved saved) {
    DeviceRuntime& device = *runtime_->device(DeviceId{0}).value();
    runtime_->step().unpacked();
    if (saved.stash.bytes().data != nullptr) {
      saved.kept = device.heap().allocate(saved.size, stream(), TagId::kUntagged).value();
      const auto fence = device.residency().fetch(saved.stash, saved.kept, stream()).value();
      EXPECT_TRUE(driver::Timeline::wait(stream(), fence).ok());
      runtime_->step().fetched(saved.decision.site, saved.size);
    }
    release(std::move(saved));
  }

  /// The handle dies without having been unpacked.
  void release(Saved saved) {
    DeviceRuntime& device = *runtime_->device(DeviceId{0}).value();
    saved.stash = {};
    device.heap().free(saved.kept);
    runtime_->step().handle_gone();
  }

  std::vector<Saved> forward(TagId tag, double ratio, const std::vector<Bytes>& sizes) {
    enter(tag, ratio);
    std::vector<Saved> saved;
    for (const Bytes size : sizes) {
      saved.push_back(save(tag, size));
      // Another thread may have ended the step meanwhile: places are those of a step.
      for (const Site& due : saved.back().decision.due) {
        for (Saved& each : saved) {
          const Site& site = each.decision.site;
          if (site.step == due.step && site.index == due.index) leave(each);
        }
      }
    }
    runtime_->step().leave_region(tag);
    return saved;
  }

  void backward(std::vector<Saved> saved) {
    while (!saved.empty()) {
      use(std::move(saved.back()));
      saved.pop_back();
    }
  }

  void train(double ratio, const std::vector<Bytes>& sizes) {
    backward(forward(kTag, ratio, sizes));
  }

  [[nodiscard]] TagStats stats_of(TagId tag) const {
    for (const TagStats& each : runtime_->stats().tags) {
      if (each.tag == tag) return each;
    }
    ADD_FAILURE() << "no such tag";
    return {};
  }

  [[nodiscard]] TagStepStats last() const { return stats_of(kTag).last; }

  [[nodiscard]] HostArenaStats host() const { return runtime_->stats().devices.at(0).host; }

  static SkipCount skip(const TagStepStats& step, SkipReason reason) {
    return step.skipped.at(static_cast<std::size_t>(reason));
  }

  static constexpr driver::Stream kStream{CUstream{nullptr}};
  const std::uint64_t reports_ = spillway_emulator_count("unordered");
  const TagId kTag = intern_tag("activations");
  std::unique_ptr<Runtime> runtime_ = std::make_unique<Runtime>(RuntimeOptions{});
};

}  // namespace spillway
