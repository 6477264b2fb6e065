// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace spillway::operators {

/// The bytes that one call reads and writes in its device's memory: the memory that arguments and
/// results cover, counted once however often they are passed or broadcast. Filled memory is not
/// read. Of indexed memory, only the selected elements count.
uint64_t traffic_of(const char* name,
                    c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results);

}  // namespace spillway::operators
