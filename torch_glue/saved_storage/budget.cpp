// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/budget.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/pluggable/hooks.h"
#include "torch_glue/saved_storage/saved_storage.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <locale>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

namespace spillway {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

/// PyTorch's own allocator rounds up to this. A block above 1 MiB may be larger by up to 1 MiB; its
/// statistics include that by the next allocation.
constexpr Bytes kBlock{512};

/// A device that has not finished a step by then is hung, and its times are not used.
constexpr std::chrono::seconds kLongestStep{60};

/// Headroom for one more block when the heap has reached its target: this share of the budget, in
/// whole pages; none for small budgets.
constexpr std::uint64_t kBeyondTarget = 256;
constexpr Bytes kPage{2U << 20U};

/// With a time limit, this share is left free too: in the last percent of the room, allocations
/// wait for copies.
constexpr std::uint64_t kToSpare = 64;

std::array<std::atomic<AllocationCurve*>, C10_COMPILE_TIME_MAX_GPUS> followed{};

Bytes allocated_in_pytorch(c10::DeviceIndex device) {
  const auto stats = caching::getDeviceStats(device);
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return Bytes{static_cast<std::uint64_t>(stats.allocated_bytes.at(all).current)};
}

/// The heap's target in a step: slightly less than its budget. With a time limit the bytes that its
/// plan needs, if fewer, plus double-buffered bytes and headroom. Zero without a plan, so that
/// streams wait before the heap grows.
Bytes target_for(DeviceRuntime& device, const RegionOptions& region) {
  const Bytes most = device.budget().bytes_of(*region.budget);
  const Bytes target = most - Bytes{most.count() / kBeyondTarget}.rounded_down(kPage);
  if (region.budget->slowdown > 0) {
    const Bytes reserved =
        Runtime::instance().plans().reserved_following_plans(region.tag, device.device().id);
    if (reserved.zero()) return reserved;
    return std::min(target,
                    reserved + device.heap().placement().double_buffered() +
                        Bytes{reserved.count() / kToSpare});
  }
  return target;
}

/// Called by PyTorch's allocator under its own lock: before an allocation is in its statistics, and
/// after a free is.
void follow(const caching::TraceEntry& event) {
  AllocationCurve* const curve = followed.at(static_cast<std::size_t>(event.device_));
  if (curve == nullptr || !curve->on()) return;
  const Bytes size = Bytes{event.size_}.rounded_up(kBlock);
  if (event.action_ == caching::TraceEntry::ALLOC) {
    curve->settle(allocated_in_pytorch(event.device_));
    curve->born(size);
  } else if (event.action_ == caching::TraceEntry::FREE_REQUESTED) {
    curve->died(event.addr_, size);
    curve->settle(allocated_in_pytorch(event.device_));
  }
}

// needed by the failed allocation, in a step with a budget
std::atomic<std::uint64_t> needed_at_end{0};

/// Everything that can be offloaded has been, up to here.
void note_end_of_memory(std::int64_t device, std::size_t asked, std::size_t, std::size_t) {
  AllocationCurve* const curve = followed.at(static_cast<std::size_t>(device));
  if (curve == nullptr || !curve->on() || curve->in_optimizer_phase()) return;
  needed_at_end = (curve->allocated() + Bytes{asked}).count();
}

std::atomic<void (*)()> reporter{nullptr};

thread_local std::optional<Site> product;  // the storage being recomputed

void begin_curve(DeviceRuntime& device) {
  AllocationCurve& curve = device.curve();
  const std::uint64_t step = Runtime::instance().step().number();
  if (serves_torch()) return curve.begin(step, device.begin_step());
  static std::once_flag once;
  std::call_once(once, [] {
    caching::attachAllocatorTraceTracker(follow);
    caching::attachOutOfMemoryObserver(note_end_of_memory);
  });
  const auto index = static_cast<c10::DeviceIndex>(device.device().id);
  followed.at(static_cast<std::size_t>(index)) = &curve;
  curve.begin(step, allocated_in_pytorch(index));
}

}  // namespace

void learn_room(DeviceRuntime& device) {
  if (device.budget().has_memory()) return;
  const auto index = static_cast<c10::DeviceIndex>(device.device().id);
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const Bytes reserved = serves_torch()
                             ? device.heap().view().reserved()
                             : Bytes{static_cast<std::uint64_t>(
                                   caching::getDeviceStats(index).reserved_bytes.at(all).current)};
  const Status learned = device.budget().learn_memory(reserved);
  TORCH_CHECK(learned.ok(), "Spillway: ", learned.detail());
}

void begin_budget_step(DeviceRuntime& device,
                       driver::Stream stream,
                       const RegionOptions& region,
                       at::IntArrayRef first) {
  AllocationCurve& curve = device.curve();
  if (curve.on() && !curve.in_optimizer_phase()) return;
  Runtime& runtime = Runtime::instance();
  runtime.step().end(StepEnd::kNextBegins);
  curve.end();  // of a tag that has another budget now
  StepRecording& recording = device.step_recording();
  // A recorded step is waited for, because the next one needs a plan.
  const bool waits = runtime.plans().awaits_times(device.device().id);
  for (const StepRecording::Measured& step : recording.take(waits, kLongestStep)) {
    runtime.plans().time(device.device().id, step.times, step.steps_ago);
    device.budget().pace().set_rate(step.times.link.in);
  }
  for (const StepRecording::Duration& step : recording.take_durations()) {
    device.budget().pace().set_seconds(step.seconds);
    runtime.plans().add_step_duration(device.device().id, step.seconds, step.steps_ago);
  }
  if (region.budget->share > 0) learn_room(device);
  if (serves_torch()) {
    // First, so that memory reserved between steps, as in an evaluation, is released before the
    // target's peak is tracked.
    device.return_to_job_budget();
    device.heap().limits().set_budget(device.budget().heap_bytes_of(*region.budget));
    device.heap().placement().set_target(target_for(device, region));
    device.model_state().take_reclaimed();
    device.take_pressed();
  }
  std::ostringstream shape;
  shape.imbue(std::locale::classic());
  shape << first;
  device.budget().set_step({runtime.step().number() + 1, shape.str()});
  begin_curve(device);
  recording.begin(stream);
}

void on_saved(DeviceRuntime& device, const Decision& decision, driver::Stream stream) {
  StepRecording& recording = device.step_recording();
  if (!recording.on()) return;
  if (decision.recording) {
    recording.saved(decision.site.index, stream);
  } else {
    recording.follow();
  }
}

std::optional<Decision> decide_recomputable(const at::Tensor& whole,
                                            const RegionOptions& region,
                                            driver::Stream stream) {
  const auto device = Runtime::instance().device(DeviceId{whole.device().index()});
  if (!device.ok()) return std::nullopt;
  begin_budget_step(*device.value(), stream, region, whole.sizes());
  Decision decision = Runtime::instance().step().decide_recomputable(
      region.tag, device.value()->device().id, Bytes{whole.storage().nbytes()});
  on_saved(*device.value(), decision, stream);
  return decision;
}

void on_access(DeviceRuntime& device, const Site& site) {
  AllocationCurve& curve = device.curve();
  if (!curve.on()) return;
  const bool same = product && product->step == site.step && product->device == site.device &&
                    product->tag == site.tag;
  curve.asked(site.step, site.index, same ? product->index : StepCurve::Ask::kNoProduct);
}

RecomputeGuard::RecomputeGuard(const std::optional<Site>& site)
    : before_(std::exchange(product, site)) {}

RecomputeGuard::~RecomputeGuard() {
  product = before_;
}

void on_first_use(DeviceRuntime& device, const Site& site, c10::cuda::CUDAStream consumer) {
  StepRecording& recording = device.step_recording();
  if (recording.on()) recording.used(site.index, stream_of(consumer));
  for (const Site& due : Runtime::instance().step().prefetch_after(site)) {
    if (const auto storage = SavedStorage::take_waiting(due)) storage->prefetch(consumer);
  }
}

void report_misses_after_backward() {
  thread_local int reported = -1;
  const int pass = torch::autograd::get_current_graph_task_id();
  if (pass == -1 || pass == reported) return;
  reported = pass;
  // After all other callbacks of the pass, which an error would skip: DistributedDataParallel's
  // reducer would become unusable.
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.queue_callback([&engine] {
    engine.queue_callback([] {
      if (auto* const report = reporter.load()) report();
    });
  });
}

std::string take_end_of_memory() {
  const std::uint64_t needed = needed_at_end.exchange(0);
  if (needed == 0) return {};
  return "a budget of spillway.offload for this step must be at least " +
         setting_of(Bytes{needed}) + " (a lower bound)";
}

void set_miss_reporter(void (*report)()) {
  reporter = report;
}

}  // namespace spillway
