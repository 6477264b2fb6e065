// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spillway/torch/api.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spillway {

/// What a BudgetRegion does besides its budget.
struct BudgetSettings {
  std::string tag = "budget";  // planned and counted under it
  bool recompute = true;       // storages may be recomputed; without it they only move
  /// From 1 on: instead of the least time the least memory, with a predicted time of at most this
  /// many times that of the step with everything kept; the budget is kept first. 0: no limit.
  double time_limit = 0;
  /// A step that exceeds the budget is a warning (TORCH_WARN), not a BudgetError.
  bool over_budget_warns = false;
};

/// For C++ users: what tensors that autograd saves on this thread while it lives need of each
/// device is kept within `budget` ("20GiB", "80%" of the device, "auto": 95 % of what it has for
/// this process), in the least time that a plan finds, as by Python's spillway.offload
/// (docs/planning.md). The first step of each sequence of shapes is recorded and may need more. A
/// step ends with end_step(), or with the next region after a backward pass.
///
/// Threads: ended on the thread that began it. Errors: c10::ValueError for a budget that is no size
/// or share, a time limit below 1 or above 100, a tag that is no path (check_tag_name) or that has
/// another budget in this step; BudgetError where the step before has missed its budget.
class SPILLWAY_TORCH_API BudgetRegion {
 public:
  explicit BudgetRegion(std::string_view budget, const BudgetSettings& settings = {});
  ~BudgetRegion();
  BudgetRegion(const BudgetRegion&) = delete;
  BudgetRegion& operator=(const BudgetRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// A step exceeded its budget although all of its activations were offloaded or recomputed; it has
/// run to its end beyond the budget. Never thrown for "auto". Thrown once, by the end of its
/// backward pass, end_step() or the next BudgetRegion, whichever comes first.
class SPILLWAY_TORCH_API BudgetError : public std::runtime_error {
 public:
  BudgetError(const std::string& text,
              int device,
              std::uint64_t budget,
              std::uint64_t smallest,
              bool lower_bound);

  [[nodiscard]] int device() const { return device_; }

  [[nodiscard]] std::uint64_t budget() const { return budget_; }  // bytes

  /// A budget, in bytes, that the step would have fit.
  [[nodiscard]] std::uint64_t smallest() const { return smallest_; }

  /// An optimizer's step, and the states that it keeps, may need more than smallest().
  [[nodiscard]] bool is_lower_bound() const { return lower_bound_; }

 private:
  int device_;
  std::uint64_t budget_;
  std::uint64_t smallest_;
  bool lower_bound_;
};

}  // namespace spillway
