// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

namespace spillway {
namespace {

std::string text_of(Bytes bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
    value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(
      text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits.at(unit));
  return text.data();
}

/// Largest first, then by id, so that the same heap gives the same text.
std::vector<std::pair<TagId, Bytes>> by_size(const std::map<TagId, Bytes>& tags) {
  std::vector<std::pair<TagId, Bytes>> sorted(tags.begin(), tags.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
    return left.second > right.second;
  });
  return sorted;
}

}  // namespace

std::string Heap::report() const {
  const HeapStats now = stats();
  std::map<TagId, Bytes> tags;
  Bytes largest;
  Bytes cap;
  {
    const Lock lock(state_->mutex);
    cap = state_->limit;
    for (const auto& [begin, region] : state_->regions) {
      largest = std::max(largest, region->largest_free());
      for (const auto& [at, block] : region->blocks()) {
        if (block.state == BlockState::kLive) tags[block.tag] += block.size;
      }
    }
  }
  std::size_t free = 0;
  std::size_t total = 0;
  const driver::CurrentDevice current(*state_->device.api, state_->device.context);
  const bool known = state_->device.api->MemGetInfo(&free, &total) == CUDA_SUCCESS;

  std::string text = "device " + std::to_string(static_cast<int>(state_->device.id)) + ": held " +
                     text_of(now.held);
  if (!cap.zero()) text += " (limit " + text_of(cap) + ")";
  text += ", live " + text_of(now.live) + " in " + std::to_string(now.live_blocks) + " blocks";
  text += ", cached " + text_of(now.held - now.live - now.lost) + " (largest block " +
          text_of(largest) + ", pending " + text_of(now.pending) + ")";
  if (!now.lost.zero()) text += ", lost " + text_of(now.lost);
  if (known) text += ", the driver has " + text_of(Bytes{free}) + " of " + text_of(Bytes{total});
  text += "; live by tag:";
  for (const auto& [tag, bytes] : by_size(tags)) {
    std::string name =
        state_->options.name_of == nullptr ? std::string() : state_->options.name_of(tag);
    if (tag == TagId::kUntagged) name = "untagged";
    if (name.empty()) name = "tag " + std::to_string(static_cast<std::uint32_t>(tag));
    text += " " + name + " " + text_of(bytes) + ",";
  }
  if (tags.empty()) text += " nothing,";
  text.pop_back();
  return text;
}

std::vector<HeapSegmentInfo> Heap::segments() const {
  const Lock lock(state_->mutex);
  std::vector<HeapSegmentInfo> segments;
  for (const auto& [begin, region] : state_->regions) {
    driver::DevicePtr end;
    for (const auto& [at, block] : region->blocks()) {
      if (at != end || end == driver::DevicePtr{}) {
        segments.push_back({at, Bytes{}, region->stream().handle(), {}});
      }
      const bool live = block.state == BlockState::kLive;
      segments.back().blocks.push_back(
          {at, block.size, block.requested, live, !block.fences.empty(), block.tag});
      segments.back().size += block.size;
      end = at + block.size;
    }
  }
  return segments;
}

}  // namespace spillway
