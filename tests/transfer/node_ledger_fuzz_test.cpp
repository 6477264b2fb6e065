// SPDX-License-Identifier: Apache-2.0
// Damaged ledgers, most of them with right checksums. FUZZ_MUTATIONS sets how many, TEST_SEED the
// seed.
#include "allocator/transfer/host_room.h"
#include "allocator/transfer/node_ledger.h"
#include "tests/support/setting.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

constexpr std::size_t kFields = 4;  // process, start time, bytes, checksum
constexpr std::size_t kEntries = 1024;
constexpr std::uint64_t kMagic = 0x5350'494c'4c57'4101;

using Entry = std::array<std::uint64_t, kFields>;
using Ledger = std::vector<Entry>;

void seal(Entry& entry) {
  constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15;
  entry[3] = ((entry[0] * kOdd + entry[1]) * kOdd + entry[2]) * kOdd + kMagic;
}

class NodeLedgerFuzz : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(ledger_.charge(1_KiB, 1_GiB).ok());
    file_ = open(ledger_.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file_, 0);
    own_ = read()[1];
    ended_ = fork();
    if (ended_ == 0) _exit(0);
    waitpid(ended_, nullptr, 0);
  }

  void TearDown() override {
    close(file_);
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] Ledger read() const {
    Ledger ledger(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)) / sizeof(Entry));
    const auto size = static_cast<ssize_t>(ledger.size() * sizeof(Entry));
    EXPECT_EQ(pread(file_, ledger.data(), static_cast<std::size_t>(size), 0), size);
    return ledger;
  }

  void write(const Ledger& ledger, off_t size) const {
    const auto bytes = std::min(ledger.size() * sizeof(Entry), static_cast<std::size_t>(size));
    ASSERT_EQ(ftruncate(file_, 0), 0);
    ASSERT_EQ(pwrite(file_, ledger.data(), bytes, 0), static_cast<ssize_t>(bytes));
    ASSERT_EQ(ftruncate(file_, size), 0);
  }

  std::uint64_t below(std::uint64_t most) { return random_() % most; }

  std::uint64_t number() {
    const std::array<std::uint64_t, 12> interesting = {0,
                                                       1,
                                                       static_cast<std::uint64_t>(getpid()),
                                                       static_cast<std::uint64_t>(ended_),
                                                       own_[1],
                                                       0x7fff'ffff,
                                                       0x8000'0000,
                                                       kNoMachineHasThis.count(),
                                                       kNoMachineHasThis.count() + 1,
                                                       1ULL << 63U,
                                                       ~0ULL,
                                                       kMagic};
    const std::uint64_t which = below(interesting.size() + 2);
    return which < interesting.size() ? interesting.at(which) : random_() >> below(64);
  }

  Entry entry() {
    Entry entry = {number(), number(), number() % (kNoMachineHasThis.count() + 1), 0};
    seal(entry);
    if (below(4) == 0) entry = own_;
    if (below(8) == 0) entry = {};
    return entry;
  }

  /// A sound ledger.
  Ledger sound() {
    Ledger ledger(kEntries);
    ledger[0][3] = kMagic;
    const std::uint64_t entries = below(32) == 0 ? kEntries - 1 : below(6);
    for (std::uint64_t i = 0; i < entries; ++i) {
      Entry made = entry();
      if (made[0] == 0) made = {};
      ledger[1 + (entries > 6 ? i : below(kEntries - 1))] = made;
    }
    return ledger;
  }

  void damage(Ledger& ledger, off_t& size) {
    Entry& target = ledger[below(2) == 0 ? 1 + below(8) : below(kEntries)];
    switch (below(16)) {
      case 0:  // any byte of an entry, without its checksum
        reinterpret_cast<unsigned char*>(&target)[below(sizeof target)] ^=
            static_cast<unsigned char>(1 + below(255));
        break;
      case 1:
        ledger[0][below(kFields)] = number();
        break;
      case 2:
        size = static_cast<off_t>(below(4) == 0 ? below(1U << 20U) : 32767 + below(3));
        break;
      case 3:
        target = ledger[below(kEntries)];
        break;
      case 4:  // a field that may be out of range, with the checksum for it
        target[below(kFields - 1)] = number();
        seal(target);
        break;
      default:  // a field in its range
        target[below(kFields - 1)] = number();
        target[2] %= kNoMachineHasThis.count() + 1;
        seal(target);
        if (target[0] == 0 || &target == ledger.data()) target = {};
    }
  }

  /// All shares together.
  static Bytes total(const Ledger& ledger) {
    Bytes sum;
    for (std::size_t i = 1; i < ledger.size(); ++i)
      sum += Bytes{ledger[i][2]};
    return sum;
  }

  bool holds_own(const Ledger& ledger) const {
    return std::any_of(ledger.begin() + 1, ledger.end(), [&](const Entry& each) {
      return each[0] == own_[0] && each[1] == own_[1];
    });
  }

  // In memory, as ledgers are: a disk would make each mutation wait.
  const std::filesystem::path folder_ =
      std::filesystem::path(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir()) /
      ("spillway_ledger_fuzz." + std::to_string(getpid()));
  NodeLedger ledger_{folder_};
  std::mt19937_64 random_;
  Entry own_{};
  pid_t ended_ = 0;
  int file_ = -1;
};

// NOLINTNEXTLINE(readability-function-cognitive-complexity): one property after the other
TEST_F(NodeLedgerFuzz, ADamagedLedgerIsRefusedUnchangedOrKeepsItsLimit) {
  const std::uint64_t seed = setting("TEST_SEED", std::random_device()());
  const std::uint64_t mutations = setting("FUZZ_MUTATIONS", 5000);
  SCOPED_TRACE("TEST_SEED=" + std::to_string(seed));
  random_.seed(seed);
  std::uint64_t accepted = 0;
  for (std::uint64_t i = 0; i < mutations && !HasFailure(); ++i) {
    SCOPED_TRACE("mutation " + std::to_string(i));
    Ledger ledger = sound();
    off_t size = sizeof(Entry) * kEntries;
    for (std::uint64_t times = below(3); times > 0; --times)
      damage(ledger, size);
    write(ledger, size);
    const Ledger before = read();

    const Bytes limit{number() >> 1U};
    const Bytes charged{number()};
    const Status status = ledger_.charge(charged, limit);

    const Ledger after = read();
    if (status.code() == Code::kInvalidArgument) {
      EXPECT_TRUE(after == before || size == 0) << "a ledger that is not trusted was changed";
      EXPECT_FALSE(status.detail().empty());
      continue;
    }
    ++accepted;
    ASSERT_TRUE(status.ok() || status.code() == Code::kOutOfHostMemory) << status.message();
    EXPECT_TRUE(ledger_.check().ok()) << "an accepted ledger became unsound";
    if (status.ok()) {
      EXPECT_LE(total(after).count(), limit.count());
    }
    if (holds_own(before) && !charged.zero()) {
      EXPECT_TRUE(holds_own(after)) << "the share of a live process was lost";
    }
    ledger_.release(charged);
    EXPECT_TRUE(ledger_.check().ok());
    EXPECT_LE(total(read()).count(), total(after).count());
  }
  EXPECT_GT(accepted * 2, mutations) << "most ledgers should pass the parser";
  RecordProperty("accepted", static_cast<int>(accepted));
}

}  // namespace
}  // namespace spillway
