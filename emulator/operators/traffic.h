// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace spillway::operators {

/// The bytes that one call reads and writes in its device's memory: of arguments and results the
/// memory that they cover, once each, however often they are given or broadcast. What fills is not
/// read; of what is indexed, or written to by index, only the elements that are named.
uint64_t traffic_of(const char* name,
                    c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results);

}  // namespace spillway::operators
