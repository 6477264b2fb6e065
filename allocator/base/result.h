// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/check.h"

#include <optional>
#include <string>
#include <utility>

namespace spillway {

enum class Code {
  kOk,
  kInvalidArgument,    // the caller's value; the detail names option, value and what is allowed
  kOutOfDeviceMemory,  // after cached memory was given back
  kOutOfHostMemory,    // the pinned budget or the machine
  kDriver,             // a CUDA driver call failed; `driver_error` says how
  kNoDriver,           // no driver library, or a function is missing from it
  kNotReady,           // asked at the wrong time; the detail says when it is right
};

/// What went wrong and where. Text is made only when it is printed.
class [[nodiscard]] Status {
 public:
  Status() = default;

  Status(Code code, std::string detail, const char* file, int line)
      : code_(code), file_(file), line_(line), detail_(std::move(detail)) {}

  /// A failed driver call: its name, CUresult as int, and place.
  static Status driver(
      int error, const char* error_name, const char* call, const char* file, int line);

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }

  [[nodiscard]] Code code() const { return code_; }

  /// The CUresult of the call that failed, 0 where no driver call did.
  [[nodiscard]] int driver_error() const { return driver_error_; }

  [[nodiscard]] const std::string& detail() const { return detail_; }

  /// One line: what, driver call and error name if any, file and line.
  [[nodiscard]] std::string message() const;

 private:
  Code code_ = Code::kOk;
  int driver_error_ = 0;
  const char* file_ = "";
  int line_ = 0;
  std::string detail_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Both implicit by design: a function returns either.
  Result(T value) : value_(std::move(value)) {}

  Result(Status status) : status_(std::move(status)) { SPILLWAY_CHECK(!status_.ok()); }

  [[nodiscard]] bool ok() const { return value_.has_value(); }

  [[nodiscard]] const Status& status() const { return status_; }

  /// Requires: ok().
  [[nodiscard]] T& value() & {
    SPILLWAY_CHECK(ok());
    return *value_;
  }

  [[nodiscard]] const T& value() const& {
    SPILLWAY_CHECK(ok());
    return *value_;
  }

  [[nodiscard]] T&& value() && {
    SPILLWAY_CHECK(ok());
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace spillway

/// A Status of our own making, with the place it was made at.
#define SPILLWAY_ERROR(code, detail) ::spillway::Status((code), (detail), __FILE__, __LINE__)

#define SPILLWAY_RETURN_IF_ERROR(expression)                        \
  do {                                                              \
    if (::spillway::Status status_ = (expression); !status_.ok()) { \
      return status_;                                               \
    }                                                               \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses.
#define SPILLWAY_CONCAT_INNER(a, b) a##b
#define SPILLWAY_CONCAT(a, b) SPILLWAY_CONCAT_INNER(a, b)
#define SPILLWAY_ASSIGN_OR_RETURN(declaration, expression) \
  SPILLWAY_ASSIGN_OR_RETURN_INNER(SPILLWAY_CONCAT(result_, __LINE__), declaration, expression)
#define SPILLWAY_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!result.ok()) return result.status();                              \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
