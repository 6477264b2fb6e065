// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <spillway/spillway.h>

#include <exception>
#include <string>

namespace spillway::abi {

/// This thread's text for spillway_last_error.
std::string& last_error();

/// The interface's code for `status`; stores the text of an error.
int finish(const Status& status);

/// kNotReady in a process that was forked from one that uses Spillway. CUDA does not work there,
/// and open trace files belong to the parent.
Status refuse_in_forked_child();

/// Runs the body of one function of the interface and converts a Status or an exception to a code.
/// In a forked child the body does not run.
template <typename Body>
int at_edge(Body body) noexcept {
  try {
    const Status usable = refuse_in_forked_child();
    return finish(usable.ok() ? body() : usable);
  } catch (
      const std::exception&) {  // the standard library throws only when the host is out of memory
    return SPILLWAY_OUT_OF_HOST_MEMORY;
  }
}

}  // namespace spillway::abi
