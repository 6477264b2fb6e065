// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/raise.h"

#include <pybind11/pybind11.h>

#include <stdexcept>

namespace spillway {

void raise(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return;
    case Code::kInvalidArgument:
      throw pybind11::value_error(status.detail());
    case Code::kNotReady:
      throw std::runtime_error(status.detail());
    default:
      throw std::runtime_error(status.message());
  }
}

}  // namespace spillway
