// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <optional>
#include <string>

namespace spillway::env {

/// The only functions that read environment variables. `name` is a setting (settings.h) with the
/// type of the function. If the variable is unset or empty, they return the setting's default; no
/// value if it has none.
/// Errors: kInvalidArgument for a value that settings::check() refuses.
/// Threads: safe unless another thread calls setenv at the same time.
Result<std::optional<std::string>> text(const char* name);  // of any type
Result<bool> flag(const char* name);                        // false if there is no default
Result<long> integer(const char* name);                     // 0 if there is no default
Result<std::optional<Bytes>> size(const char* name);
Result<std::optional<double>> number(const char* name);  // a rate: bytes per second; time: seconds

/// A variable of another project, for which empty and unset differ.
std::optional<std::string> foreign(const char* name);

}  // namespace spillway::env
