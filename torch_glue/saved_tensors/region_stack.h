// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/tag/tag.h"
#include "torch_glue/saved_tensors/saved_storage.h"

#include <cstdint>
#include <memory>

namespace spillway {

/// A part of one thread's forward pass whose saved tensors may move.
struct OffloadedRegion {
  std::uint64_t id;
  TagId tag;
  /// How many Python saved-tensor hooks were in force at its entry: one more is an inner context,
  /// which wins.
  size_t python_hooks;
  std::unique_ptr<TagScope> scope;  // null for a region without a tag: it renames no memory
  bool open = true;
  std::weak_ptr<SavedStorage> last_moved;
};

/// Opens a region on this thread and installs the engine on first use; the id closes it.
/// Errors: kInvalidArgument where `tag` already has another ratio in this step.
Result<std::uint64_t> enter_region(TagId tag, Ratio ratio);

/// Closes it. Regions that are left out of order stay nested until the inner ones are left.
/// Errors: kInvalidArgument where this thread has no such open region.
Status leave_region(std::uint64_t id);

/// The innermost open region of this thread, null where there is none.
OffloadedRegion* innermost_region();

}  // namespace spillway
