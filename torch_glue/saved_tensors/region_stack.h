// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_storage/saved_storage.h"

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace spillway {

/// Provides the hooks of tensors in a region with rules of its own.
class SavingRules {
 public:
  virtual ~SavingRules() = default;
  /// For the next tensor that this thread saves.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;

  /// Whether hooks() is also for what a graph of torch.compile saves. Otherwise that stays, and the
  /// rules are for the handles that autograd then saves.
  [[nodiscard]] virtual bool apply_in_graphs() const { return false; }

  /// The tensors that this thread saves until end_checkpoint() are arguments of a checkpointed
  /// call.
  virtual void begin_checkpoint() {}

  virtual void end_checkpoint() {}
};

/// A part of one thread's forward pass that decides on the tensors saved in it. They may be
/// offloaded, follow the region's own rules, or, with neither, stay.
struct OffloadedRegion {
  std::uint64_t id;
  std::optional<RegionOptions> moves;
  std::shared_ptr<SavingRules> rules;
  /// Number of Python saved-tensor hooks active at its entry. A further hook is an inner context
  /// and takes precedence.
  size_t python_hooks;
  std::unique_ptr<TagScope> scope;  // null for a region that does not tag memory
  bool open = true;
};

/// Opens a region on this thread and installs the engine on first use; the id closes it.
/// Errors: kInvalidArgument if the tag already has another ratio in this step.
Result<std::uint64_t> enter_region(const RegionOptions& options);

/// Opens a region in which saved tensors stay on the device, whatever regions are around it.
std::uint64_t enter_keeping_region();

/// Opens a region that acts as the innermost one and also recomputes storages where possible: see
/// torch_glue/recompute. Inner regions recompute too.
/// Errors: as enter_region(options).
Result<std::uint64_t> enter_recomputing_region();

/// Sets the region around the regions of all threads, for programs that open none. All threads save
/// in it from now on, including those in a forward pass. It does not tag memory.
/// Errors: as enter_region(options); kInvalidArgument if there already is one.
Status set_process_region(const RegionOptions& options);

/// Opens a region with rules of its own.
std::uint64_t enter_region(std::shared_ptr<SavingRules> rules);

/// Opens a region with rules of its own that may offload tensors as in `options`.
/// Errors: as enter_region(options).
Result<std::uint64_t> enter_region(const RegionOptions& options,
                                   std::shared_ptr<SavingRules> rules);

/// Closes it. A region that is closed out of order stays in force until the inner ones are closed.
/// Errors: kInvalidArgument if this thread has no such open region.
Status leave_region(std::uint64_t id);

/// Opens a region on this thread for a scope.
class EnteredRegion {
 public:
  explicit EnteredRegion(std::uint64_t id) : id_(id) {}

  ~EnteredRegion() { SPILLWAY_CHECK(leave_region(id_).ok()); }

  EnteredRegion(const EnteredRegion&) = delete;
  EnteredRegion& operator=(const EnteredRegion&) = delete;

 private:
  const std::uint64_t id_;
};

/// During its lifetime, regions that this thread opens keep their tensors, because no backward pass
/// will use them. A recomputing region acts as the region around it.
class OffloadDisabledGuard {
 public:
  OffloadDisabledGuard();
  ~OffloadDisabledGuard();
  OffloadDisabledGuard(const OffloadDisabledGuard&) = delete;
  OffloadDisabledGuard& operator=(const OffloadDisabledGuard&) = delete;

 private:
  const bool before_;
};

/// Number of regions that this thread has open.
std::size_t open_regions();

/// The innermost region of this thread; null if there is none.
const OffloadedRegion* innermost_region();

}  // namespace spillway
