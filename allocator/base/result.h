// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/check.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace spillway {

enum class Code {
  kOk,
  // invalid argument of the caller; the detail names option, value and allowed values
  kInvalidArgument,
  kOutOfDeviceMemory,  // after all cached memory was released
  kOutOfHostMemory,    // the pinned budget or the machine is exhausted
  kDriver,             // a CUDA driver call failed; see `driver_error`
  kNoDriver,           // no driver library, or a function is missing from it
  kNotReady,           // called at the wrong time; the detail names the right time
};

/// Success, or an error with its source location. A pointer that is null on success, so that
/// success costs nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Bytes of `detail` that are not UTF-8 are replaced (valid_utf8), because Python displays it.
  Status(Code code, const std::string& detail, const char* file, int line);

  /// A failed driver call: its name, CUresult as int, and source location.
  static Status driver(
      int error, const char* error_name, const char* call, const char* file, int line);

  [[nodiscard]] bool ok() const { return failure_ == nullptr; }

  [[nodiscard]] Code code() const { return ok() ? Code::kOk : failure_->code; }

  /// The CUresult of the failed call; 0 if no driver call failed.
  [[nodiscard]] int driver_error() const { return ok() ? 0 : failure_->driver_error; }

  [[nodiscard]] const std::string& detail() const;

  /// One line: the detail, driver call and error name if any, file and line.
  [[nodiscard]] std::string message() const;

 private:
  struct Failure {
    Code code;
    int driver_error;
    const char* file;
    int line;
    std::string detail;
  };

  explicit Status(Failure failure);

  std::shared_ptr<const Failure> failure_;
};

/// A value, or the Status of the error.
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

/// A Status of Spillway's own, with its source location.
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
