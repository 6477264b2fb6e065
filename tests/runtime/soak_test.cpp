// SPDX-License-Identifier: Apache-2.0
// Everything at once, round after round, and nothing that grows. SOAK_SECONDS is the duration,
// TEST_SEED sets the seed.
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "emulator/emulator.h"
#include "tests/support/setting.h"

#include <gtest/gtest.h>

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// How many of the driver's handles are open.
std::uint64_t open_handles(const char* made, const char* gone) {
  return spillway_emulator_count(made) - spillway_emulator_count(gone);
}

/// What a process may not have more of after each round, when everything has been freed.
struct Use {
  std::uint64_t events = 0;  // the driver's
  std::uint64_t allocated =
      0;  // bytes of the program's own memory: the allocator's accounting above all
  std::uint64_t resident = 0;  // bytes of it that are there

  static Use now() {
    malloc_trim(0);
    Use use;
    use.events = open_handles("cuEventCreate", "cuEventDestroy");
    const struct mallinfo2 heap = mallinfo2();
    use.allocated = heap.uordblks + heap.hblkhd;
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    use.resident = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return use;
  }

  void raise_to(const Use& other) {
    events = std::max(events, other.events);
    allocated = std::max(allocated, other.allocated);
    resident = std::max(resident, other.resident);
  }
};

/// Where threads leave blocks for others to free.
class Mailbox {
 public:
  driver::DevicePtr swap(std::size_t at, driver::DevicePtr with) {
    const Lock lock(mutex_);
    return std::exchange(places_.at(at % places_.size()), with);
  }

  static constexpr std::size_t kPlaces = 32;

 private:
  Mutex mutex_;
  std::array<driver::DevicePtr, kPlaces> places_ SPILLWAY_GUARDED_BY(mutex_){};
};

/// One thread's part of a round: blocks of its own under a tag of its own.
class Worker {
 public:
  Worker(Runtime& runtime, Mailbox& mailbox, std::vector<driver::Stream> streams, unsigned number)
      : runtime_(runtime),
        device_(*runtime.device(DeviceId{0}).value()),
        mailbox_(mailbox),
        streams_(std::move(streams)),
        path_("soak/" + std::to_string(number)) {}

  void work(std::uint64_t seed, int calls) {
    random_.seed(seed);
    const driver::CurrentDevice current(*device_.device().api, device_.device().context);
    const TagScope scope(intern_tag(path_));
    for (int call = 0; call < calls && !testing::Test::HasFailure(); ++call)
      step();
    while (!blocks_.empty())
      free_one();
  }

 private:
  struct Own {
    driver::DevicePtr at;
    Bytes size;
    driver::Stream stream;
    unsigned char value;
  };

  void step() {
    const auto action = random_() % 100;
    if (blocks_.size() < 4 || (action < 40 && blocks_.size() < kMax)) return allocate();
    if (action < 70) return free_one();
    if (action < 78) return leave_for_others();
    if (action < 88) return use_elsewhere();
    if (action < 94) return move_by_the_host();
    if (action < 97) return evict_and_restore();
    pause_and_resume();
  }

  void allocate() {
    const std::uint64_t limit = random_() % 8 == 0 ? (3_MiB).count() : (64_KiB).count();
    const driver::Stream stream = streams_.at(random_() % streams_.size());
    own(Bytes{1 + random_() % limit}, stream);
  }

  Own& own(Bytes size, driver::Stream stream) {
    const auto made = device_.allocate(size, stream);
    EXPECT_TRUE(made.ok()) << made.status().message();
    blocks_.push_back({made.ok() ? made.value() : driver::DevicePtr{}, size, stream, 0});
    write(blocks_.back());
    return blocks_.back();
  }

  void write(Own& block) {
    if (block.at == driver::DevicePtr{}) return;
    block.value = static_cast<unsigned char>(random_());
    auto* const bytes = static_cast<unsigned char*>(block.at.raw());
    bytes[0] = bytes[block.size.count() - 1] = block.value;
  }

  static void expect_value(const Own& block) {
    if (block.at == driver::DevicePtr{}) return;
    const auto* const bytes = static_cast<const unsigned char*>(block.at.raw());
    EXPECT_EQ(bytes[0], block.value);
    EXPECT_EQ(bytes[block.size.count() - 1], block.value);
  }

  Own take_any() {
    std::swap(blocks_.at(random_() % blocks_.size()), blocks_.back());
    const Own block = blocks_.back();
    blocks_.pop_back();
    return block;
  }

  void free_one() {
    const Own block = take_any();
    expect_value(block);
    EXPECT_TRUE(device_.free(block.at));
  }

  void leave_for_others() {
    const Own block = take_any();
    const driver::DevicePtr other = mailbox_.swap(random_(), block.at);
    EXPECT_TRUE(device_.free(other));
  }

  void use_elsewhere() {
    const driver::DevicePtr at = blocks_.at(random_() % blocks_.size()).at;
    device_.heap().record_use(at, streams_.at(random_() % streams_.size()));
  }

  /// To the host and back into another block, while the first is freed with the copy's fence.
  void move_by_the_host() {
    const Own block = take_any();
    auto stash = device_.residency().stash(block.at, block.size, block.stream);
    EXPECT_TRUE(device_.free(block.at));
    if (!stash.ok()) return;  // no host memory
    Own& back = own(block.size, streams_.at(random_() % streams_.size()));
    const auto fetched = device_.residency().fetch(stash.value(), back.at, back.stream);
    EXPECT_TRUE(fetched.ok()) << fetched.status().message();
    if (fetched.ok()) {
      EXPECT_TRUE(driver::Timeline::wait_sync(fetched.value()).ok());
      back.value = block.value;
      expect_value(back);
    }
  }

  void evict_and_restore() {
    Own& block = blocks_.at(random_() % blocks_.size());
    if (path_ == kPaused) return;  // a pause has them in hand
    const std::array at = {block.at};
    device_.device().api->StreamSynchronize(block.stream.handle());
    EXPECT_TRUE(device_.heap().evict(at).ok());
    EXPECT_TRUE(device_.heap().restore(at).ok());
    write(block);
  }

  void pause_and_resume() {
    if (path_ != kPaused) return;
    const Contents contents = random_() % 4 == 0 ? Contents::kDiscarded : Contents::kKept;
    const auto paused = runtime_.pauses().pause({{path_, contents}});
    if (!paused.ok()) {
      EXPECT_EQ(paused.status().code(), Code::kOutOfHostMemory) << paused.status().message();
      return;
    }
    const auto resumed = runtime_.pauses().resume({path_});
    EXPECT_TRUE(resumed.ok()) << resumed.status().message();
    for (Own& block : blocks_) {
      if (contents == Contents::kKept) {
        expect_value(block);
      } else {
        write(block);
      }
    }
  }

  static constexpr std::size_t kMax = 24;  // blocks of one thread
  static constexpr std::string_view kPaused = "soak/0";

  Runtime& runtime_;
  DeviceRuntime& device_;
  Mailbox& mailbox_;
  const std::vector<driver::Stream> streams_;
  const std::string path_;
  std::mt19937_64 random_;
  std::vector<Own> blocks_;
};

class SoakTest : public testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    options.pinned_limit = 64_MiB;
    runtime_ = std::make_unique<Runtime>(options);
    device_ = runtime_->device(DeviceId{0}).value();
    const driver::CurrentDevice current(api(), device_->device().context);
    for (int each = 0; each < 4; ++each) {
      CUstream stream = nullptr;
      ASSERT_EQ(api().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
      streams_.emplace_back(stream);
    }
    used_ = spillway_emulator_used(0);
  }

  void TearDown() override {
    runtime_.reset();
    for (const driver::Stream stream : streams_)
      driver::api().value()->StreamDestroy(stream.handle());
  }

  [[nodiscard]] const driver::Api& api() const { return *device_->device().api; }

  /// All threads do their part of it; then everything is freed and released.
  void round(std::uint64_t seed) {
    Mailbox mailbox;
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < streams_.size(); ++number) {
      threads.emplace_back([this, &mailbox, seed, number] {
        Worker(*runtime_, mailbox, streams_, number).work(seed * streams_.size() + number, kCalls);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t place = 0; place < Mailbox::kPlaces; ++place)
      EXPECT_TRUE(device_->free(mailbox.swap(place, {})));
    for (const driver::Stream stream : streams_)
      api().StreamSynchronize(stream.handle());
    device_->heap().trim_sync();
    device_->arena().reset_peak();
    device_->arena().trim_sync();
  }

  void expect_nothing_held() {
    const HeapStats heap = device_->heap().stats();
    EXPECT_EQ(device_->heap().view().check(), "");
    EXPECT_EQ(heap.allocated_blocks, 0U);
    EXPECT_EQ(heap.bad_frees, 0U);
    EXPECT_EQ(heap.reserved, 0_B);
    EXPECT_EQ(spillway_emulator_used(0), used_);
    EXPECT_EQ(device_->pauses().stats().blocks, 0U);
    EXPECT_EQ(device_->arena().stats().in_slots, 0_B);
    EXPECT_EQ(open_handles("cuMemCreate", "cuMemRelease"), 0U);
    EXPECT_EQ(open_handles("cuMemHostRegister", "cuMemHostUnregister"), 0U);
  }

  static constexpr int kCalls = 400;  // of one thread in one round
  std::unique_ptr<Runtime> runtime_;
  DeviceRuntime* device_ = nullptr;
  std::vector<driver::Stream> streams_;
  std::uint64_t used_ = 0;
};

TEST_F(SoakTest, NothingGrowsAfterTheFirstFifth) {
  using Clock = std::chrono::steady_clock;
  const std::uint64_t seed = setting("TEST_SEED", std::random_device{}());
  const std::chrono::seconds length(setting("SOAK_SECONDS", 20));
  std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const Clock::time_point begin = Clock::now();
  Use warm;
  Use last;
  std::uint64_t rounds = 0;
  for (bool warming = true; Clock::now() - begin < length; ++rounds) {
    round(seed + rounds);
    expect_nothing_held();
    ASSERT_FALSE(HasFailure()) << "round " << rounds;
    last = Use::now();
    if (warming) warm.raise_to(last);
    warming = Clock::now() - begin < length / 5;
  }
  std::printf(
      "%llu rounds; events %llu, allocated %llu and resident %llu bytes, at first at most %llu, "
      "%llu and %llu\n",
      static_cast<unsigned long long>(rounds),
      static_cast<unsigned long long>(last.events),
      static_cast<unsigned long long>(last.allocated),
      static_cast<unsigned long long>(last.resident),
      static_cast<unsigned long long>(warm.events),
      static_cast<unsigned long long>(warm.allocated),
      static_cast<unsigned long long>(warm.resident));

  // A timeline keeps as many events as were once outstanding, and it asks after some tens of them.
  EXPECT_LE(last.events, warm.events + 64);
  EXPECT_LE(last.allocated, warm.allocated + (128_KiB).count());
  EXPECT_LE(last.resident, warm.resident + (4_MiB).count());
}

}  // namespace
}  // namespace spillway
