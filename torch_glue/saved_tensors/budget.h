// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_tensors/region_options.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <string>

namespace spillway {

/// From now on, until the step ends, the device's curve() follows what it holds, whichever
/// allocator its memory is of, and what it computes is timed. Called before the first decision of a
/// step, which computes on `stream`; later calls do nothing. Spillway's heap holds up to what
/// the budget of `region` allows, or a plan within its time needs, before it lets streams wait for
/// memory. `first`: the sizes of the first tensor that the step saves, for errors. Stream: after a
/// step that was recorded for a plan the host waits for the device to come
/// to its end. Errors: c10::Error where PyTorch's allocator cannot be followed.
void begin_budget_step(DeviceRuntime& device,
                       driver::Stream stream,
                       const RegionOptions& region,
                       at::IntArrayRef first);

/// Asks once what the device has, for budgets that are a share of it. Errors: c10::Error.
void learn_room(DeviceRuntime& device);

/// A storage of such a step was saved, and decided on.
void on_saved(DeviceRuntime& device, const Decision& decision, driver::Stream stream);
/// It has been wanted, for the first time: what the step's plan fetches then begins to come.
/// Requires: the caller holds no SavedStorage's lock.
void on_first_use(DeviceRuntime& device, const Site& site, c10::cuda::CUDAStream consumer);

/// It has been asked for, and is on the device.
void on_access(DeviceRuntime& device, const Site& site);

/// While it lives, what this thread asks for is asked for so that the storage can be recomputed
/// ; without a site, for the backward pass itself.
class ComputingAgain {
 public:
  explicit ComputingAgain(const std::optional<Site>& product);
  ~ComputingAgain();
  ComputingAgain(const ComputingAgain&) = delete;
  ComputingAgain& operator=(const ComputingAgain&) = delete;

 private:
  const std::optional<Site> before_;
};

/// What the plan of a step with a budget says of a storage that can be recomputed; nothing
/// where the device has no stages. Requires: the region has a budget.
std::optional<Decision> decide_recomputable(const at::Tensor& whole,
                                            const RegionOptions& region,
                                            driver::Stream stream);

/// When the backward pass that runs on this thread has ended, the teller is called; nothing where
/// none runs.
void report_misses_after_backward();

/// Where PyTorch's allocator ran out of memory in a step with a budget: what that must be at least,
/// as text for the error, once; empty otherwise.
std::string take_end_of_memory();

/// Who tells the program that a budget was missed, by an exception of its own; null for nothing.
void set_miss_teller(void (*tell)());

}  // namespace spillway
