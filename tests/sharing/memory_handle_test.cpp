// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/memory_handle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace spillway {
namespace {

constexpr std::size_t kHeader = 40;
constexpr std::size_t kPiece = 16;

MemoryHandle handle() {
  return {4711, 12, 987654321, 5, {{13, Bytes{2U << 20U}}, {14, Bytes{20U << 20U}}}};
}

/// The bytes of `handle()` with a number of them replaced.
template <typename T>
std::string with(std::size_t at, T value) {
  std::string bytes = handle().bytes();
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

Code refusal(const std::string& bytes) {
  return MemoryHandle::read(bytes).status().code();
}

TEST(MemoryHandle, TheReaderReturnsTheWrittenEvents) {
  const auto read = MemoryHandle::read(handle().bytes());

  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value(), handle());
  EXPECT_EQ(read.value().size(), Bytes{22U << 20U});
}

TEST(MemoryHandle, CutShortAnywhereItIsRefused) {
  const std::string whole = handle().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(refusal(whole.substr(0, size)), Code::kInvalidArgument) << size;
}

TEST(MemoryHandle, WithMoreBehindItIsRefused) {
  EXPECT_EQ(refusal(handle().bytes() + '\0'), Code::kInvalidArgument);
  EXPECT_EQ(refusal(handle().bytes() + std::string(kPiece, '\0')), Code::kInvalidArgument);
}

TEST(MemoryHandle, AnotherMakersHandleIsRefusedAndTheTextStatesWhatToDo) {
  const auto read = MemoryHandle::read(std::string(66, '\1'));

  ASSERT_EQ(read.status().code(), Code::kInvalidArgument);
  EXPECT_NE(read.status().detail().find("use_allocator"), std::string::npos);
}

TEST(MemoryHandle, AnotherVersionIsRefused) {
  EXPECT_EQ(refusal(with<std::uint32_t>(8, 2)), Code::kInvalidArgument);
}

TEST(MemoryHandle, CountsThatDoNotFitTheLengthAreRefused) {
  for (const std::uint32_t count :
       {0U, 1U, 3U, 1U << 28U, std::numeric_limits<std::uint32_t>::max()})
    EXPECT_EQ(refusal(with(12, count)), Code::kInvalidArgument) << count;
}

TEST(MemoryHandle, MorePiecesThanAnyMemoryHasAreRefused) {
  MemoryHandle most = handle();
  most.pieces.resize(MemoryHandle::kMaxPieces, {3, Bytes{1}});
  std::string bytes = most.bytes();
  ASSERT_TRUE(MemoryHandle::read(bytes).ok());
  const std::uint32_t more = MemoryHandle::kMaxPieces + 1;
  std::memcpy(bytes.data() + 12, &more, sizeof more);
  bytes += bytes.substr(bytes.size() - kPiece);

  EXPECT_EQ(refusal(bytes), Code::kInvalidArgument);
}

TEST(MemoryHandle, NegativeNumbersOfProcessesAndFilesAreRefused) {
  EXPECT_EQ(refusal(with<std::int32_t>(16, 0)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::int32_t>(16, -4711)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::int32_t>(20, -1)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::int32_t>(kHeader + 8, -1)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::uint32_t>(kHeader + 12, 1)), Code::kInvalidArgument);
}

TEST(MemoryHandle, SizesThatAreZeroOrOverflowAreRefused) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(refusal(with<std::uint64_t>(kHeader, 0)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::uint64_t>(kHeader, kMax)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(with<std::uint64_t>(kHeader + kPiece, kMax / 2)), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spillway
