// SPDX-License-Identifier: Apache-2.0
// A step that matches its replay plan exactly: updates of its blocks and accounting from the
// cursor.
#include "allocator/heap/region_hits.h"
#include "allocator/heap/replay_region.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {

void ReplayRegion::set_cursor_events(const StepSequence& sequence) {
  std::vector<ReplayEvent> events;
  whole_ = {};
  whole_counts_ = {};
  std::map<TagId, std::pair<std::uint64_t, std::uint64_t>> tags;  // allocated bytes, and their peak
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  std::uint64_t blocks = 0;
  for (const auto& [index, freed] : sequence.events) {
    const Request& request = requests_[index];
    const TagId tag = sequence.requests[index].tag;
    if (!request.placed) {
      if (!freed) events.push_back({{}, request.requested, tag, index});
      continue;
    }
    events.push_back({request.block.at, freed ? Bytes{} : request.requested, tag, index});
    auto& [tagged, most] = tags[tag];
    const std::uint64_t size = request.block.size.count();
    if (freed) {
      bytes -= size;
      tagged -= size;
      requested -= request.requested.count();
      --blocks;
      continue;
    }
    whole_.bytes = std::max(whole_.bytes, bytes += size);
    whole_.requested = std::max(whole_.requested, requested += request.requested.count());
    whole_.blocks = std::max(whole_.blocks, ++blocks);
    most = std::max(most, tagged += size);
    ++whole_counts_.allocations;
    whole_counts_.allocated_total += request.block.size;
    whole_counts_.requested_total += request.requested;
  }
  for (const auto& [tag, allocated] : tags)
    whole_.tags.emplace_back(tag, allocated.second);
  cursor_.plan(std::move(events), static_cast<std::uint32_t>(requests_.size()));
}

void ReplayRegion::write_accounting() {
  for (const ReplayEvent& event : cursor_.write_down(ReplayCursor::Ledger::kAccounting)) {
    const Request& request = requests_[event.request];
    if (!request.placed) continue;
    if (event.requested.zero()) {
      account_.take_back(event.tag, request.block.size, request.requested);
    } else {
      account_.hand_out(event.tag, request.block.size, request.requested);
    }
  }
}

void ReplayRegion::write_blocks() {
  for (const ReplayEvent& event : cursor_.write_down(ReplayCursor::Ledger::kBlocks)) {
    Request& request = requests_[event.request];
    if (!request.placed) continue;
    if (event.requested.zero()) {
      take_back(&request.block);
    } else {
      hand_out(request, event.tag);
    }
  }
}

void ReplayRegion::show() {
  write_accounting();
  write_blocks();
}

void ReplayRegion::open() {
  if (!cursor_.on()) return;
  cursor_.stop();
  show();
  next_ = cursor_.next_request();
}

/// The step has matched the replay plan exactly: the next one begins.
void ReplayRegion::end_cursor_step() {
  if (cursor_.written(ReplayCursor::Ledger::kAccounting)) {
    write_accounting();
  } else {
    accounting_.passed(whole_);
  }
  if (cursor_.written(ReplayCursor::Ledger::kBlocks)) {
    write_blocks();
  } else {
    counts_.allocations += whole_counts_.allocations;
    counts_.frees += whole_counts_.allocations;
    counts_.replayed_allocations += whole_counts_.allocations;
    counts_.allocated_total += whole_counts_.allocated_total;
    counts_.requested_total += whole_counts_.requested_total;
  }
  cursor_.begin();
}

}  // namespace spillway
