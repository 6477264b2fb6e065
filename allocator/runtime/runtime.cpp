// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include "allocator/device/fork.h"
#include "allocator/tag/tag.h"

#include <atomic>
#include <utility>

namespace spillway {
namespace {

std::atomic<Runtime::ModelStateSource> model_state_source{nullptr};

}  // namespace

Runtime& Runtime::instance() {
  // Never destroyed: other destructors of the process may still free memory through it.
  static Runtime* const runtime = [] {
    Result<RuntimeOptions> options = RuntimeOptions::from_environment();
    return options.ok() ? new Runtime(options.value(), Status())
                        : new Runtime(RuntimeOptions(), options.status());
  }();
  return *runtime;
}

Runtime::Runtime(RuntimeOptions options) : Runtime(std::move(options), Status()) {}

Runtime::Runtime(RuntimeOptions options, Status settings)
    : devices_(std::move(options), std::move(settings)) {
  watch_for_forks();
  if (driver::tags_are_reported()) watch_tags(driver::announce_tag);
}

void Runtime::set_model_state_source(ModelStateSource source) {
  model_state_source = source;
}

RuntimeStats Runtime::stats(std::size_t most_tags) const {
  if (in_forked_child()) return {};
  RuntimeStats stats{step_.stats(most_tags)};
  stats.driver = driver::counters();
  const ModelStateSource source = model_state_source.load();
  for (DeviceRuntime* const device : devices_.made()) {
    stats.devices.push_back({device->device().id,
                             device->heap().stats(),
                             device->arena().stats(),
                             device->residency().stats(),
                             device->pauses().stats(),
                             source == nullptr ? ModelStateBytes{} : source(device->device().id)});
  }
  return stats;
}

}  // namespace spillway
