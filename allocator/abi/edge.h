// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <spillway/spillway.h>

#include <exception>
#include <string>

namespace spillway::abi {

/// This thread's text for spillway_last_error.
std::string& last_error();

/// The interface's own code for `status`, whose text is kept where it is an error.
int finish(const Status& status);

/// Runs the body of one function of the interface; a Status or an exception becomes a code.
template <typename Body>
int at_edge(Body body) noexcept {
  try {
    return finish(body());
  } catch (
      const std::exception&) {  // the standard library throws only when the host is out of memory
    return SPILLWAY_OUT_OF_HOST_MEMORY;
  }
}

}  // namespace spillway::abi
