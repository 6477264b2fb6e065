// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/result.h"

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

Status Status::driver(
    int error, const char* error_name, const char* call, const char* file, int line) {
  Status status(Code::kDriver, std::string(call) + ": " + error_name, file, line);
  status.driver_error_ = error;
  return status;
}

std::string Status::message() const {
  if (ok()) return name_of(code_);
  std::string text = std::string(name_of(code_)) + ": " + detail_;
  return text + " (" + file_ + ":" + std::to_string(line_) + ")";
}

}  // namespace spillway
