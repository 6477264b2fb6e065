// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/sizes.h"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

/// Locates a call's address, bytes and stream among its arguments, for the rows of the lists. With
/// `kReads` a locator follows a pointer, which is safe only after a successful call.
namespace spillway::interpose::arguments {

template <typename T>
std::uint64_t number(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::uint64_t>(value);
  }
}

struct None {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& /*unused*/) {
    return 0;
  }
};

/// The default stream of the calling thread or of all threads, by the function's convention.
struct Default : None {};

/// An argument.
template <std::size_t kPlace>
struct At {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return number(std::get<kPlace>(all));
  }
};

/// The value that the call has written through a pointer argument.
template <std::size_t kPlace>
struct Out {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return std::get<kPlace>(all) == nullptr ? 0 : number(*std::get<kPlace>(all));
  }
};

/// The pitch that the call has chosen, times the rows.
template <std::size_t kPitch, std::size_t kRows>
struct Pitched {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return Out<kPitch>::of(all) * At<kRows>::of(all);
  }
};

/// The product of two arguments, and of the bytes per item.
template <std::size_t kFirst, std::size_t kSecond, std::size_t kEach = 1>
struct Product {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return At<kFirst>::of(all) * At<kSecond>::of(all) * kEach;
  }
};

/// A number of items of `kEach` bytes.
template <std::size_t kPlace, std::size_t kEach>
struct Items {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return At<kPlace>::of(all) * kEach;
  }
};

/// A member of a description, which is an argument or is pointed to by one.
template <std::size_t kPlace, auto kMember>
struct Field {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    const auto& value = std::get<kPlace>(all);
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>) {
      return value == nullptr ? 0 : number(value->*kMember);
    } else {
      return number(value.*kMember);
    }
  }
};

/// The bytes described by arguments, computed by sizes.h.
template <std::size_t... kIndices>
struct Size {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return sizes::bytes_of(std::get<kIndices>(all)...);
  }
};

/// Likewise for all elements of an array, with its length.
template <std::size_t kArray, std::size_t kLength>
struct Sum {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < std::get<kLength>(all); ++i)
      sum += sizes::bytes_of(std::get<kArray>(all) + i);
    return sum;
  }
};

}  // namespace spillway::interpose::arguments
