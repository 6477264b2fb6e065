// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

/// How the rows of the lists say where a call's address, bytes and stream are among its arguments.
/// One that `kReads` follows a pointer, which is safe only after a call without an error.
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

/// An argument.
template <std::size_t kPlace>
struct At {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return number(std::get<kPlace>(all));
  }
};

/// What the call has written to where an argument points.
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

/// The product of two arguments.
template <std::size_t kFirst, std::size_t kSecond>
struct Product {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return At<kFirst>::of(all) * At<kSecond>::of(all);
  }
};

/// So many words of 32 bits.
template <std::size_t kPlace>
struct Words {
  static constexpr bool kReads = false;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    return At<kPlace>::of(all) * sizeof(std::uint32_t);
  }
};

/// An array and the number of its elements.
template <std::size_t kArray, std::size_t kLength>
struct Sum {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < std::get<kLength>(all); ++i)
      sum += std::get<kArray>(all)[i];
    return sum;
  }
};

/// A description of a copy in two or three dimensions.
template <std::size_t kPlace>
struct Box {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    const auto* box = std::get<kPlace>(all);
    if constexpr (requires { box->Depth; }) {
      return std::uint64_t{box->WidthInBytes} * box->Height * box->Depth;
    } else {
      return std::uint64_t{box->WidthInBytes} * box->Height;
    }
  }
};

/// The stream of a launch configuration.
template <std::size_t kPlace>
struct OfConfig {
  static constexpr bool kReads = true;

  template <typename Tuple>
  static std::uint64_t of(const Tuple& all) {
    const auto* config = std::get<kPlace>(all);
    if constexpr (requires { config->hStream; }) {
      return number(config->hStream);
    } else {
      return number(config->stream);
    }
  }
};

}  // namespace spillway::interpose::arguments
