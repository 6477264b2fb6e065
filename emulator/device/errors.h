// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::emulator {

/// One error under its driver and runtime names; the numbers are the same.
struct ErrorText {
  int code;
  const char* driver_name;
  const char* runtime_name;
  const char* text;
};

/// Null for a code that CUDA does not define.
const ErrorText* error_text(int code);

/// Whether every later call of the process returns the error too, as specified in cuda.h.
bool is_sticky(int code);

/// The explanation for the user: the settings' error, the call that is not emulated, or the code's
/// own text.
const char* explain_error(int code);

}  // namespace spillway::emulator
