// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_storage/region_options.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <string>

namespace spillway {

/// Begins a step with a budget: until the step ends, the device's curve() tracks its allocated
/// bytes under any allocator, and its compute is timed. Call it before the first decision of a step
/// that computes on `stream`; further calls have no effect. Spillway's heap reserves up to the
/// budget of `region`, or what a plan within its time limit needs, before it makes streams wait for
/// memory. `first`: the sizes of the step's first saved tensor, for errors.
/// Stream: after a step that was recorded for a plan, the host waits for the device to finish it.
/// Errors: c10::Error if PyTorch's allocator cannot be tracked.
void begin_budget_step(DeviceRuntime& device,
                       driver::Stream stream,
                       const RegionOptions& region,
                       at::IntArrayRef first);

/// Queries the device's memory once, for budgets that are a share of it. Errors: c10::Error.
void learn_room(DeviceRuntime& device);

/// Reports that a storage of such a step was saved and decided on.
void on_saved(DeviceRuntime& device, const Decision& decision, driver::Stream stream);
/// Reports its first use; the fetches that the step's plan ties to it begin.
/// Requires: the caller holds no SavedStorage's lock.
void on_first_use(DeviceRuntime& device, const Site& site, c10::cuda::CUDAStream consumer);

/// Reports a use; the storage is on the device.
void on_access(DeviceRuntime& device, const Site& site);

/// During its lifetime, uses by this thread count as operands for the recomputation of that
/// storage; without a site, as uses by the backward pass itself.
class RecomputeGuard {
 public:
  explicit RecomputeGuard(const std::optional<Site>& product);
  ~RecomputeGuard();
  RecomputeGuard(const RecomputeGuard&) = delete;
  RecomputeGuard& operator=(const RecomputeGuard&) = delete;

 private:
  const std::optional<Site> before_;
};

/// The plan's action for a storage that can be recomputed in a step with a budget; none if the
/// device has no stages.
/// Requires: the region has a budget.
std::optional<Decision> decide_recomputable(const at::Tensor& whole,
                                            const RegionOptions& region,
                                            driver::Stream stream);

/// Calls the reporter when the backward pass on this thread has ended; does nothing if none runs.
void report_misses_after_backward();

/// After PyTorch's allocator ran out of memory in a step with a budget: returns the least budget
/// needed as text for the error, once; otherwise empty.
std::string take_end_of_memory();

/// Sets the function that reports a missed budget to the program by an exception of its own; null:
/// none.
void set_miss_reporter(void (*report)());

}  // namespace spillway
