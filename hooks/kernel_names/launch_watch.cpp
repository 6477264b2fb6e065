// SPDX-License-Identifier: Apache-2.0
#include "hooks/kernel_names/launch_watch.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"

#include <pthread.h>

#include <array>
#include <string>
#include <utility>

namespace spillway::hooks {
namespace {

/// The driver and NVTX load a profiler through these variables; Nsight's tools set them.
constexpr std::array kProfilers = {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"};

std::atomic<bool> forked{false};

/// This thread is in a callback. Nested driver calls are not launches of the program.
thread_local bool inside = false;

class Inside {
 public:
  Inside() { inside = true; }

  ~Inside() { inside = false; }

  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

Status no_profiler_is_due() {
  for (const char* name : kProfilers) {
    const auto value = env::foreign(name);
    if (!value || value->empty()) continue;
    return SPILLWAY_ERROR(Code::kNotReady,
                          std::string(name) + "=" + *value +
                              ": a profiler uses CUPTI in this process, and CUPTI allows one "
                              "subscriber. Unset the variable to watch launches.");
  }
  return {};
}

Status refused(const CuptiApi& cupti, const char* call, CUptiResult result) {
  return SPILLWAY_ERROR(Code::kDriver, std::string(call) + ": " + cupti.text(result));
}

}  // namespace

std::atomic<bool> LaunchWatch::on_{false};

LaunchWatch& LaunchWatch::instance() {
  static auto* const watch = new LaunchWatch;
  return *watch;
}

Status LaunchWatch::start(const CuptiApi& cupti,
                          const driver::Api& driver,
                          const Options& options) {
  static const int watching = pthread_atfork(nullptr, nullptr, [] {
    forked.store(true, std::memory_order_relaxed);
    on_.store(false, std::memory_order_relaxed);
  });
  static_cast<void>(watching);  // it fails only without memory
  if (forked.load(std::memory_order_relaxed)) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "launches cannot be watched in a forked child. Start it with spawn.");
  }
  if (options.steps < 1) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "steps=" + std::to_string(options.steps) + ": expected 1 or more");
  }
  SPILLWAY_RETURN_IF_ERROR(no_profiler_is_due());
  const Lock lock(control_);
  if (subscriber_ != nullptr) {
    return SPILLWAY_ERROR(Code::kNotReady, "launches are watched already. End that first.");
  }
  recorder_.begin(driver);
  SPILLWAY_RETURN_IF_ERROR(subscribe(cupti));
  steps_left_ = options.steps;
  on_.store(true, std::memory_order_relaxed);
  return {};
}

Status LaunchWatch::subscribe(const CuptiApi& cupti) {
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> other{};
  CUpti_SubscriberParams parameters{};
  parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  parameters.subscriberName = "Spillway";
  parameters.oldSubscriberName = other.data();
  parameters.oldSubscriberSize = other.size();
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult result = cupti.subscribe(&subscriber, called, this, &parameters);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    other.back() = '\0';
    const std::string who = other.front() == '\0' ? "" : " (" + std::string(other.data()) + ")";
    const std::string line =
        "a profiler or debugger has CUPTI" + who + ": launches can be watched once it has ended";
    log("launch watch: " + line);
    return SPILLWAY_ERROR(Code::kNotReady, line);
  }
  if (result != CUPTI_SUCCESS) return refused(cupti, "cuptiSubscribe_v2", result);
  cupti_ = cupti;
  subscriber_ = subscriber;
  for (const LaunchSite& site : launch_sites()) {
    const CUptiResult enabled =
        cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, site.id);
    if (enabled == CUPTI_SUCCESS) continue;
    unsubscribe();
    return refused(cupti, "cuptiEnableCallback", enabled);
  }
  return {};
}

void LaunchWatch::unsubscribe() {
  on_.store(false, std::memory_order_relaxed);
  // It fails only if CUPTI has already been shut down.
  cupti_.unsubscribe(std::exchange(subscriber_, nullptr));
}

void LaunchWatch::stop() {
  if (forked.load(std::memory_order_relaxed)) return;
  const Lock lock(control_);
  if (subscriber_ != nullptr) unsubscribe();
}

void LaunchWatch::step_ended() {
  if (!on()) return;
  const Lock lock(control_);
  if (subscriber_ != nullptr && --steps_left_ == 0) unsubscribe();
}

std::vector<Launch> LaunchWatch::take() {
  if (forked.load(std::memory_order_relaxed)) return {};
  return LaunchRecorder::take();
}

LaunchCounts LaunchWatch::counts() const {
  return recorder_.counts();
}

void CUPTIAPI LaunchWatch::called(void* watch,
                                  CUpti_CallbackDomain domain,
                                  CUpti_CallbackId id,
                                  const void* data) noexcept {
  if (inside || domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const LaunchSite* site = launch_site(id);
  if (site == nullptr || forked.load(std::memory_order_relaxed)) return;
  const Inside here;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  LaunchRecorder& recorder = static_cast<LaunchWatch*>(watch)->recorder_;
  try {
    if (call.callbackSite == CUPTI_API_EXIT) {
      recorder.left(call);
    } else if (on()) {
      recorder.entered(site->stream(call.functionParams), call);
    }
  } catch (...) {
    recorder.missed();  // the launch proceeds normally
  }
}

}  // namespace spillway::hooks
