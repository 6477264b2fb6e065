// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/offloaded_addresses.h"

#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace spillway {
namespace {

class OffloadedAddressesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto device = Runtime::instance().device(DeviceId{0});
    ASSERT_TRUE(device.ok()) << device.status().message();
    addresses_ = std::make_unique<OffloadedAddresses>(device.value()->device());
  }

  std::unique_ptr<OffloadedAddresses> addresses_;
};

TEST_F(OffloadedAddressesTest, NoTwoRangesInUseOverlap) {
  std::mt19937_64 dice(1);
  std::map<driver::DevicePtr, Bytes> used;
  for (int i = 0; i < 4000; ++i) {
    if (!used.empty() && dice() % 3 == 0) {
      const auto given = std::next(used.begin(), static_cast<long>(dice() % used.size()));
      addresses_->give(given->first, given->second);
      used.erase(given);
      continue;
    }
    // Some exceed what is left of a reservation.
    const Bytes size{dice() % 8 == 0 ? (1ULL << 36U) + dice() % 4096 : 1 + dice() % 100'000};
    const auto at = addresses_->take(size);
    ASSERT_TRUE(at.ok());
    ASSERT_EQ(at.value().address() % 512, 0U);
    const auto next = used.lower_bound(at.value());
    if (next != used.end()) {
      ASSERT_LE(at.value() + size, next->first);
    }
    if (next != used.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, at.value());
    }
    used.emplace(at.value(), size);
  }
}

TEST_F(OffloadedAddressesTest, AReturnedRangeIsTheNextOneOfItsSize) {
  const auto first = addresses_->take(Bytes{1000});
  const auto second = addresses_->take(Bytes{1000});
  ASSERT_TRUE(first.ok() && second.ok());
  addresses_->give(first.value(), Bytes{1000});
  const auto larger = addresses_->take(Bytes{5000});
  EXPECT_NE(larger.value(), first.value());
  EXPECT_EQ(addresses_->take(Bytes{1001}).value(), first.value());  // both take 1024 bytes
}

TEST_F(OffloadedAddressesTest, ARangeMayExceedAReservation) {
  const auto large = addresses_->take(Bytes{(1ULL << 38U) + 1});
  ASSERT_TRUE(large.ok());
  const auto next = addresses_->take(Bytes{512});
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next.value() >= large.value() + Bytes{(1ULL << 38U) + 1} ||
              next.value() + Bytes{512} <= large.value());
}

}  // namespace
}  // namespace spillway
