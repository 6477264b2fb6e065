// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace spillway {

/// Tells the run log which operator made a tensor that moves, and which line of the program saves
/// it; in the first steps only, because later ones are alike and lines cost microseconds.
/// Requires: RunLog::on(). Threads: safe; no lock may be held that a thread with Python's lock
/// waits for.
void tell_source(const at::Tensor& tensor, std::uint64_t storage);

/// Who knows the line of the program that this thread runs; "" where there is none. One for the
/// process; null for none.
using LineTeller = std::string (*)();
void set_line_teller(LineTeller teller);

}  // namespace spillway
