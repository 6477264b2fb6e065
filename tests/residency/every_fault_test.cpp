// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/faulted_calls.h"
#include "tests/residency/residency_fixture.h"

#include <string>

namespace spillway {
namespace {

/// Every driver call of transfer and residency, made to fail at its first, second, ... time. The
/// parameter is the call.
class EveryFaultTest : public ResidencyFixture, public testing::WithParamInterface<const char*> {
 protected:
  struct Outcome {
    bool right = true;     // what was fetched is what went out
    bool all_done = true;  // no call reported an error
  };

  void TearDown() override {
    spillway_emulator_fault(nullptr);
    ResidencyFixture::TearDown();
  }

  static bool typed(const Status& status) {
    return status.ok() || status.code() == Code::kDriver ||
           status.code() == Code::kOutOfHostMemory || status.code() == Code::kOutOfDeviceMemory;
  }

  void note(Outcome& outcome, const Status& status) {
    EXPECT_TRUE(typed(status)) << status.message();
    outcome.all_done = outcome.all_done && status.ok();
  }

  void SetUp() override {
    ResidencyFixture::SetUp();
    read_ = reinterpret_cast<Read>(spillway_emulator_proc_address("cuMemcpyDtoH", 3020));
    ASSERT_NE(read_, nullptr);
  }

  driver::DevicePtr block(Outcome& outcome, Bytes size) {
    const auto at = heap_->allocate(size, main_, TagId::kUntagged);
    note(outcome, at.status());
    return at.ok() ? at.value() : driver::DevicePtr{};
  }

  /// Two storages go out and are fetched, one of them larger than the arena's pieces; then two
  /// copies together, through stages of their own.
  Outcome move_something() {
    Outcome outcome;
    there_and_back(outcome, kSize);
    there_and_back(outcome, 9_MiB);
    together(outcome);
    return outcome;
  }

  void there_and_back(Outcome& outcome, Bytes size) {
    const driver::DevicePtr source = block(outcome, size);
    if (source == driver::DevicePtr{}) return;
    EXPECT_EQ(set_bytes_(source.address(), 7, size.count(), main_.handle()), CUDA_SUCCESS);
    Result<Stash> saved = residency_->stash(source, size, main_);
    note(outcome, saved.status());
    heap_->free(source);
    if (!saved.ok()) return;
    const driver::DevicePtr destination = block(outcome, size);
    if (destination != driver::DevicePtr{}) {
      are_fetched(outcome, saved.value(), destination);
      heap_->free(destination);
    }
  }

  void are_fetched(Outcome& outcome, Stash& saved, driver::DevicePtr destination) {
    const auto fetched = residency_->fetch(saved, destination, main_);
    note(outcome, fetched.status());
    if (!fetched.ok()) return;
    const Status waited = driver::Timeline::wait(main_, fetched.value());
    note(outcome, waited);
    if (!waited.ok()) copies_->drain_sync();  // who cannot wait on the device waits on the host
    EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
    std::vector<std::byte> bytes(saved.bytes().size.count());
    EXPECT_EQ(read_(bytes.data(), destination.address(), bytes.size()), CUDA_SUCCESS);
    outcome.right = outcome.right && value_of(bytes) == 7;
  }

  void together(Outcome& outcome) {
    const auto copies = CopyEngine::create(device_);
    note(outcome, copies.status());
    if (!copies.ok()) return;
    HostArena arena(device_, Bytes{});
    std::vector<HostSlot> slots;
    std::vector<CopyOut> out;
    slots.reserve(2);
    for (int each = 0; each < 2; ++each) {
      Result<HostSlot> taken = arena.take(4_KiB);
      note(outcome, taken.status());
      const driver::DevicePtr at = block(outcome, 4_KiB);
      if (taken.ok()) slots.push_back(std::move(taken).value());
      if (taken.ok() && at != driver::DevicePtr{}) out.emplace_back(at, slots.back());
    }
    if (!out.empty()) note(outcome, copies.value()->to_host(out, main_).status());
    // Blocks, slots and stages end here, so the copies must have.
    copies.value()->drain_sync();
    slots.clear();
    for (const CopyOut& copy : out)
      heap_->free(copy.source);
  }

  using Read = CUresult (*)(void*, CUdeviceptr, std::size_t);
  Read read_ = nullptr;
};

TEST_P(EveryFaultTest, IsATypedErrorThatLeavesTheAccountingCorrect) {
  const std::string call = GetParam();
  constexpr int kMax = 200;
  int n = 0;
  bool met = true;
  while (met && ++n < kMax) {
    const std::string spec = call + ":" + std::to_string(n) + "=invalid_value";
    const std::uint64_t before = spillway_emulator_count(call.c_str());
    ASSERT_EQ(spillway_emulator_fault(spec.c_str()), nullptr);

    const Outcome outcome = move_something();

    spillway_emulator_fault(nullptr);
    met = spillway_emulator_count(call.c_str()) - before >= static_cast<std::uint64_t>(n);
    EXPECT_TRUE(outcome.right) << spec;
    EXPECT_EQ(residency_->stats().on_host, 0_B) << spec;
    EXPECT_EQ(offloaded_.load(), 0U) << spec;
    EXPECT_EQ(heap_->stats().allocated_blocks, 0U) << spec;
    copies_->drain_sync();
    EXPECT_TRUE(arena_->trim_sync()) << spec;
    EXPECT_EQ(arena_->stats().in_slots, 0_B) << spec;
    const Outcome after = move_something();
    EXPECT_TRUE(after.right && after.all_done) << spec;
  }
  EXPECT_LT(n, kMax);
  EXPECT_GT(n, 1) << "the call was made at least once";
  EXPECT_EQ(heap_->view().check(), "");
}

INSTANTIATE_TEST_SUITE_P(Calls,
                         EveryFaultTest,
                         testing::ValuesIn(kFaultedInResidency),
                         [](const testing::TestParamInfo<const char*>& call) {
                           return std::string(call.param);
                         });

}  // namespace
}  // namespace spillway
