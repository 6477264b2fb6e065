// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/ratio_policy.h"

namespace spillway {

PolicyDecision RatioPolicy::on_saved(const OfferedStorage& storage, TagStepStats& step) {
  using Choice = RatioChooser::Choice;
  const Choice choice = chooser_.choose(storage.size, storage.node);
  const bool stays = storage.cannot_help;
  PolicyDecision decision;
  decision.index = chooser_.storages_seen() - 1;
  decision.referenced_elsewhere = choice == Choice::kReferencedElsewhere;
  decision.action.known = chooser_.matches_known();
  // Storages that stay are offloaded after all if the device has no room.
  decision.action.waits = choice == Choice::kWait || (stays && choice == Choice::kOffload);
  decision.action.offload = choice == Choice::kOffload && !stays;
  for (const std::size_t index : chooser_.take_due()) {
    if (stays) {
      step.skip(SkipReason::kCannotHelp, chooser_.size(index));
    } else {
      decision.due.push_back(index);
    }
  }
  if (decision.referenced_elsewhere) {
    step.skip(SkipReason::kReferencedElsewhere, storage.size);
  } else {
    step.offloadable += storage.size;
  }
  if (stays && choice == Choice::kOffload) step.skip(SkipReason::kCannotHelp, storage.size);
  return decision;
}

void RatioPolicy::on_event(StorageEvent event, DeviceId, std::size_t index) {
  switch (event) {
    case StorageEvent::kNoHostMemory:
    case StorageEvent::kEndedBeforeOffload:
      return chooser_.not_offloaded(index);
    case StorageEvent::kAliveAtUnpack:
      chooser_.alive_at_unpack(index);
      return;
    case StorageEvent::kUnreferenced:
      return chooser_.unreferenced(index);
  }
}

bool RatioPolicy::on_first_use(std::size_t index, std::optional<std::size_t> last_saved) {
  if (!last_saved || chooser_.node_index(index) != chooser_.node_index(*last_saved)) return false;
  chooser_.used_at_once(index);
  return true;
}

std::vector<BudgetMiss> RatioPolicy::on_end(bool had_backward, bool) {
  if (had_backward) {
    chooser_.end_step();
  } else {
    chooser_.abandon_step();
  }
  return {};
}

}  // namespace spillway
