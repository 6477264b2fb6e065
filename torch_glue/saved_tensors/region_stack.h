// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/saved_tensors/region_options.h"
#include "torch_glue/saved_tensors/saved_storage.h"

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace spillway {

/// Gives the hooks of tensors in a region that has rules of its own.
class SavingRules {
 public:
  virtual ~SavingRules() = default;
  /// For the tensor that this thread saves next.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;

  /// What this thread saves until end_checkpoint() are the arguments of a checkpointed call.
  virtual void begin_checkpoint() {}

  virtual void end_checkpoint() {}

  /// Whether it has the last word on tensors saved in regions and under Python hooks inside, too.
  [[nodiscard]] virtual bool covers_inner() const { return false; }

  /// Whose hooks a tensor would get otherwise.
  enum class Source {
    kRegion,  // a region's that moves or keeps tensors
    kRules,
    kPython,  // may call a function again
  };

  /// That word: `inner` are the hooks that the tensor would get, null where autograd keeps it.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> cover(
      std::unique_ptr<torch::autograd::SavedVariableHooks> inner, Source source) {
    static_cast<void>(source);
    return inner;
  }

  /// A function that was called inside is called again by this, at any time and on any thread.
  /// Empty where it can be called as it is.
  using CallAgain = std::function<void(const std::function<void()>&)>;

  [[nodiscard]] virtual CallAgain how_to_call_again() { return {}; }
};

/// A part of one thread's forward pass that says what becomes of the tensors saved in it: they may
/// move, or follow rules of the region's own, or, with neither, stay.
struct OffloadedRegion {
  std::uint64_t id;
  std::optional<RegionOptions> moves;
  std::shared_ptr<SavingRules> rules;
  SavingRules* covering;  // the innermost rules from here outwards that cover_inner(), or null
  /// How many Python saved-tensor hooks were in force at its entry: one more is an inner context,
  /// which wins.
  size_t python_hooks;
  std::unique_ptr<TagScope> scope;  // null for a region that renames no memory
  bool open = true;
};

/// Opens a region on this thread and installs the engine on first use; the id closes it.
/// Errors: kInvalidArgument where the tag already has another ratio in this step.
Result<std::uint64_t> enter_region(const RegionOptions& options);

/// Opens a region inside which the tensors that autograd saves are left alone, whatever regions are
/// around it.
std::uint64_t enter_keeping_region();

/// Opens a region that does what the innermost one does, and besides leaves to be recomputed
/// what can be: see torch_glue/recompute. Regions inside do so, too. Errors: as
/// enter_region(options).
Result<std::uint64_t> enter_recomputing_region();

/// The region that every thread is in, around those that it opens: for programs that open none.
/// Autograd of all threads, running ones too, saves in it from now on. It renames no memory.
/// Errors: as enter_region(options); kInvalidArgument where there is one already.
Status set_process_region(const RegionOptions& options);

/// Opens a region with rules of its own.
std::uint64_t enter_region(std::shared_ptr<SavingRules> rules);

/// Opens a region with rules of its own, which may move tensors as `options` say.
/// Errors: as enter_region(options).
Result<std::uint64_t> enter_region(const RegionOptions& options,
                                   std::shared_ptr<SavingRules> rules);

/// Closes it. Regions that are left out of order stay nested until the inner ones are left.
/// Errors: kInvalidArgument where this thread has no such open region.
Status leave_region(std::uint64_t id);

/// A region that this thread has entered, left with the scope.
class EnteredRegion {
 public:
  explicit EnteredRegion(std::uint64_t id) : id_(id) {}

  ~EnteredRegion() { SPILLWAY_CHECK(leave_region(id_).ok()); }

  EnteredRegion(const EnteredRegion&) = delete;
  EnteredRegion& operator=(const EnteredRegion&) = delete;

 private:
  const std::uint64_t id_;
};

/// While it lives, regions that this thread opens keep their tensors: no backward pass reads what
/// is saved in them. A recomputing region does what the region around it does.
class OffloadDisabledGuard {
 public:
  OffloadDisabledGuard();
  ~OffloadDisabledGuard();
  OffloadDisabledGuard(const OffloadDisabledGuard&) = delete;
  OffloadDisabledGuard& operator=(const OffloadDisabledGuard&) = delete;

 private:
  const bool before_;
};

/// How many regions this thread has open.
std::size_t open_regions();

/// The region around this thread's innermost one with these rules, null where there is none.
const OffloadedRegion* region_around(const SavingRules& rules);

/// The innermost region that this thread is in, null where there is none.
const OffloadedRegion* innermost_region();

}  // namespace spillway
