// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <c10/util/Exception.h>

#include <utility>

namespace spillway {

/// Throws c10::Error with the message of a failed Status.
inline void check(const Status& status) {
  TORCH_CHECK(status.ok(), "Spillway: ", status.message());
}

/// The value; throws c10::Error with the status's message if there is none.
template <typename T>
T checked(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace spillway
