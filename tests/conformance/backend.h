// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

namespace conformance {

/// The driver functions of one implementation; one that it lacks answers CUDA_ERROR_NOT_FOUND.
struct Driver {
#define SPILLWAY_CU(name, version) PFN_cu##name##_v##version name = nullptr;
#include "tests/conformance/functions.inc"
#undef SPILLWAY_CU
};

/// One implementation of the CUDA driver: the emulated GPU, or the machine's own.
class Backend {
 public:
  using Find = void* (*)(const char* name, int version);

  Backend(const char* name, Find (*lookup)()) : name_(name), lookup_(lookup) {}

  [[nodiscard]] const char* name() const { return name_; }

  /// Its functions, after cuInit and with device 0's primary context made. Null, and a reason in
  /// `why`, where it is not to be had on this machine.
  const Driver* driver(std::string* why);

 private:
  const char* name_;
  Find (*lookup_)();
  Driver driver_;
  bool tried_ = false;
  std::string why_;
};

Backend& emulated();
Backend& real();

}  // namespace conformance
