// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/job.h"

#include <string>

/// For the preload library, in programs without Python. Null, or what is wrong; the text stays.
extern "C" __attribute__((visibility("default"))) const char* spillway_start_job() {
  static const std::string* const wrong = [] {
    const spillway::Status started = spillway::start_job();
    return started.ok() ? nullptr : new std::string(started.detail());
  }();
  return wrong == nullptr ? nullptr : wrong->c_str();
}
