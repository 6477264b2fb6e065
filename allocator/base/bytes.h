// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/check.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway {

/// A number of bytes. An explicit type, so that other counts cannot be added to it. SPILLWAY_CHECK
/// detects subtraction below zero and addition past 2^64.
class Bytes {
 public:
  constexpr Bytes() = default;

  explicit constexpr Bytes(std::uint64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }

  [[nodiscard]] constexpr bool zero() const { return count_ == 0; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr bool operator==(Bytes, Bytes) = default;

  Bytes& operator+=(Bytes other) {
    SPILLWAY_CHECK(count_ + other.count_ >= count_);
    count_ += other.count_;
    return *this;
  }

  Bytes& operator-=(Bytes other) {
    SPILLWAY_CHECK(count_ >= other.count_);
    count_ -= other.count_;
    return *this;
  }

  friend Bytes operator+(Bytes left, Bytes right) { return left += right; }

  friend Bytes operator-(Bytes left, Bytes right) { return left -= right; }

  /// left - right, or zero if `right` is larger.
  friend Bytes saturating_sub(Bytes left, Bytes right) {
    return left > right ? left - right : Bytes{};
  }

  /// The smallest multiple of `unit` that is at least this size. Requires: unit > 0.
  [[nodiscard]] Bytes rounded_up(Bytes unit) const;
  /// The largest multiple of `unit` that is at most this size. Requires: unit > 0.
  [[nodiscard]] Bytes rounded_down(Bytes unit) const;

 private:
  std::uint64_t count_ = 0;
};

/// Such as "20.00 MiB", for messages.
std::string readable(Bytes bytes);

/// A value of a size setting such as "77GiB": at least `need`, and at most a fiftieth larger.
std::string setting_of(Bytes need);

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes{n};
}

constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes{n << 10U};
}

constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes{n << 20U};
}

constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes{n << 30U};
}
}  // namespace literals

}  // namespace spillway
