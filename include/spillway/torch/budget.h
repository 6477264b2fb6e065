// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spillway/torch/api.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spillway {

/// Options of a BudgetRegion besides its budget.
struct BudgetSettings {
  std::string tag = "budget";  // the tag for planning and statistics
  bool recompute = true;       // recomputes storages where possible; if false, only offloads
  /// From 1 on: minimizes memory instead of time. The predicted time is at most this many times
  /// that of the step with everything kept; the budget takes precedence. 0: no limit.
  double time_limit = 0;
  /// Exceeding the budget is a warning (TORCH_WARN) instead of a BudgetError.
  bool over_budget_warns = false;
};

/// For C++ users: keeps each device within `budget`: "20GiB", "80%" of the device, or "auto", 95 %
/// of the GPU memory that is free, or reserved by this process, when its first step with a budget
/// begins. With Spillway's allocator a budget of 32 MiB or more limits reserved bytes; smaller
/// ones, and all budgets with PyTorch's allocator, limit allocated bytes. While the region exists,
/// it handles the tensors that autograd saves on this thread. Parameters, buffers, gradients and
/// optimizer states stay on the device and count. It minimizes the step's time like Python's
/// spillway.offload without a model (docs/planning.md). The first step of each sequence of shapes
/// is recorded and may need more. A step ends with end_step() (spillway/torch/region.h), or with
/// the next region after a backward pass.
///
/// Threads: must be destroyed on the thread that created it; otherwise the process aborts.
/// Errors: the constructor enters no region if it throws. c10::ValueError for a budget that is
/// neither a size nor a share, or more than the device has; a time_limit other than 0 or 1 to 100;
/// an empty or invalid tag (as OffloadRegion); another budget for the tag, or a second tag with a
/// budget, within one step. BudgetError if the previous step has missed its budget.
class SPILLWAY_TORCH_API BudgetRegion {
 public:
  explicit BudgetRegion(std::string_view budget, const BudgetSettings& settings = {});
  ~BudgetRegion();
  BudgetRegion(const BudgetRegion&) = delete;
  BudgetRegion& operator=(const BudgetRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// A step exceeded its budget although all of its activations were offloaded or recomputed, or
/// because no more host memory could be pinned for them. The step has completed beyond the budget.
/// Not thrown for "auto". Thrown once per step: by the end of the backward pass, by end_step(), or
/// by the next BudgetRegion, whichever is first.
///
/// The first step that ends with end_step() only warns (TORCH_WARN), because the states that an
/// optimizer allocates in its first step count from the next step on. If the program does not call
/// end_step(), the next BudgetRegion throws, with is_lower_bound().
class SPILLWAY_TORCH_API BudgetError : public std::runtime_error {
 public:
  BudgetError(const std::string& text,
              int device,
              std::uint64_t budget,
              std::uint64_t smallest,
              bool lower_bound,
              std::uint64_t begin = 0,
              std::uint64_t activations = 0);

  [[nodiscard]] int device() const { return device_; }

  [[nodiscard]] std::uint64_t budget() const { return budget_; }  // bytes

  /// A budget, in bytes, that the step would have met.
  [[nodiscard]] std::uint64_t smallest() const { return smallest_; }

  /// Bytes of smallest() that were allocated when the step saved its first tensor: parameters,
  /// gradients and optimizer states, mostly.
  [[nodiscard]] std::uint64_t begin() const { return begin_; }

  /// Bytes of smallest() beyond begin() that are saved activations that were on the device
  /// at the step's peak. The rest is memory such as gradients and workspaces.
  [[nodiscard]] std::uint64_t activations() const { return activations_; }

  /// Whether an optimizer step and its states may need more than smallest().
  [[nodiscard]] bool is_lower_bound() const { return lower_bound_; }

 private:
  int device_;
  std::uint64_t budget_;
  std::uint64_t smallest_;
  bool lower_bound_;
  std::uint64_t begin_;
  std::uint64_t activations_;
};

}  // namespace spillway
