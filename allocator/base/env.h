// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <optional>
#include <string>

namespace spillway::env {

/// The only readers of the environment. `name` is a variable of the table of settings (settings.h)
/// of the reader's type. An unset or empty variable gives the default of the table, and no value
/// where that has none.
/// Errors: kInvalidArgument for a value that settings::check() refuses.
/// Threads: safe unless another thread calls setenv at the same time.
Result<std::optional<std::string>> text(const char* name);  // of any type
Result<bool> flag(const char* name);                        // without a default: false
Result<long> integer(const char* name);                     // without a default: 0
Result<std::optional<Bytes>> size(const char* name);
Result<std::optional<double>> number(const char* name);  // a rate: bytes per second; time: seconds

/// A variable of another project, for which empty and unset differ.
std::optional<std::string> foreign(const char* name);

}  // namespace spillway::env
