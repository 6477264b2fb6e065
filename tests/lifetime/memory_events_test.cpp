// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/memory_events.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

using namespace literals;

/// Writes the events down. Never destroyed, as all observers.
class Notes final : public MemoryObserver {
 public:
  void born(const BornBlock& block) override {
    text_ += "born " + std::to_string(block.address) + " " +
             std::to_string(block.requested.count()) + "; ";
  }

  void died(DeviceId, std::uint64_t address) override {
    text_ += "died " + std::to_string(address) + "; ";
  }

  void retagged(DeviceId, std::uint64_t address, TagId) override {
    text_ += "retagged " + std::to_string(address) + "; ";
  }

  void step_ended() override { text_ += "step; "; }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void report_one_of_each() {
  MemoryEvents::born({.device = DeviceId{0}, .address = 4096, .requested = 7_B, .rounded = 512_B});
  MemoryEvents::retagged(DeviceId{0}, 4096, TagId::kUntagged);
  MemoryEvents::died(DeviceId{0}, 4096);
  MemoryEvents::step_ended();
}

TEST(MemoryEventsTest, EveryObserverReceivesEveryEventInOrder) {
  static auto& one = *new Notes;
  static auto& other = *new Notes;
  MemoryEvents::subscribe(one);
  MemoryEvents::subscribe(other);

  report_one_of_each();

  EXPECT_EQ(one.text(), "born 4096 7; retagged 4096; died 4096; step; ");
  EXPECT_EQ(other.text(), one.text());
  MemoryEvents::unsubscribe(one);
  MemoryEvents::unsubscribe(other);
}

TEST(MemoryEventsTest, EventsAreOnWhileAnythingIsSubscribed) {
  static auto& one = *new Notes;
  static auto& other = *new Notes;
  EXPECT_FALSE(MemoryEvents::on());
  MemoryEvents::subscribe(one);
  MemoryEvents::subscribe(other);
  MemoryEvents::unsubscribe(one);
  EXPECT_TRUE(MemoryEvents::on());
  report_one_of_each();
  MemoryEvents::unsubscribe(other);

  EXPECT_FALSE(MemoryEvents::on());
  EXPECT_TRUE(one.text().empty());
  EXPECT_FALSE(other.text().empty());
}

}  // namespace
}  // namespace spillway
