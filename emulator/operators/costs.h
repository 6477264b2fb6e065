// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace spillway::operators {

/// What an operator asks of a GPU: bytes that go to or from its memory, and floating point
/// operations.
struct Cost {
  uint64_t bytes = 0;
  double flops = 0;
};

/// The cost of one call: every argument is read once and every result written once; a
/// multiplication and an addition count as two operations. Matrix products, convolutions and
/// attention have FLOPs, everything else is taken to be limited by memory.
Cost cost_of(const char* name,
             c10::ArrayRef<c10::IValue> arguments,
             c10::ArrayRef<c10::IValue> results);

}  // namespace spillway::operators
