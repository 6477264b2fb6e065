// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"
#include "torch_glue/job.h"

#include <string>

// For the preload library, in programs without Python.

namespace {

spillway::Status start() {
  SPILLWAY_RETURN_IF_ERROR(spillway::start_job());
  SPILLWAY_ASSIGN_OR_RETURN(const auto ratios, spillway::env::text("SPILLWAY_TAG_RATIO"));
  return ratios ? spillway::set_named_regions(*ratios) : spillway::Status();
}

}  // namespace

/// Null, or the error; the text stays valid.
extern "C" __attribute__((visibility("default"))) const char* spillway_start_job() {
  static const std::string* const wrong = [] {
    const spillway::Status started = start();
    return started.ok() ? nullptr : new std::string(started.detail());
  }();
  return wrong == nullptr ? nullptr : wrong->c_str();
}

extern "C" __attribute__((visibility("default"))) void spillway_range_pushed(const void* domain,
                                                                             const char* name) {
  spillway::range_pushed(domain, name);
}

extern "C" __attribute__((visibility("default"))) void spillway_range_popped(const void* domain) {
  spillway::range_popped(domain);
}
