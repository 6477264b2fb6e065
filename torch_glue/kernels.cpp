// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/kernels.h"

#include "allocator/driver/span_log.h"
#include "allocator/driver/span_names.h"
#include "allocator/runtime/run_log.h"
#include "hooks/kernel_names/launch_watch.h"

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>

namespace spillway {
namespace {

/// Whether there may be kernels that the log does not have yet.
std::atomic<bool> expected{false};

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  free(text);  // NOLINT(cppcoreguidelines-no-malloc,*-owning-memory): the demangler's
  return result;
}

}  // namespace

Status watch_kernels(int steps, const std::vector<std::string>& cupti_folders) {
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Api* const driver, driver::api());
  SPILLWAY_ASSIGN_OR_RETURN(const hooks::CuptiApi cupti, hooks::CuptiApi::load(cupti_folders));
  SPILLWAY_RETURN_IF_ERROR(hooks::LaunchWatch::instance().start(cupti, *driver, {steps}));
  expected.store(true, std::memory_order_relaxed);
  return {};
}

void kernels_step_ended() {
  if (!expected.load(std::memory_order_relaxed)) return;
  hooks::LaunchWatch::instance().step_ended();
  std::vector<driver::Span> spans;
  for (const hooks::Launch& launch : hooks::LaunchWatch::take()) {
    driver::Span span;
    span.kind = driver::Span::Kind::kKernel;
    span.device = launch.device;
    span.stream = launch.stream;
    span.submitted = launch.submitted;
    span.begin = launch.begin;
    span.end = launch.end;
    span.name = driver::number_span_name(demangled(launch.name));
    spans.push_back(span);
  }
  RunLog::instance().timed(spans);
}

}  // namespace spillway
