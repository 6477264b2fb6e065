// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/result.h"

#include "allocator/base/utf8.h"

#include <array>

namespace spillway {
namespace {

const char* name_of(Code code) {
  constexpr std::array kNames = {"ok",
                                 "invalid argument",
                                 "out of device memory",
                                 "out of host memory",
                                 "driver error",
                                 "no driver",
                                 "not ready"};
  return kNames.at(static_cast<std::size_t>(code));
}

}  // namespace

Status::Status(Failure failure) : failure_(std::make_shared<const Failure>(std::move(failure))) {}

Status::Status(Code code, const std::string& detail, const char* file, int line)
    : Status(Failure{code, 0, file, line, valid_utf8(detail)}) {}

Status Status::driver(
    int error, const char* error_name, const char* call, const char* file, int line) {
  return Status(Failure{Code::kDriver, error, file, line, std::string(call) + ": " + error_name});
}

const std::string& Status::detail() const {
  static const auto* const none = new std::string;  // never freed: used until the process ends
  return ok() ? *none : failure_->detail;
}

std::string Status::message() const {
  if (ok()) return name_of(code());
  return std::string(name_of(failure_->code)) + ": " + failure_->detail + " (" + failure_->file +
         ":" + std::to_string(failure_->line) + ")";
}

}  // namespace spillway
