// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/pause_coordinator.h"

#include "allocator/device/fork.h"
#include "allocator/tag/tag.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

namespace spillway {
namespace {

/// One device's part in a pause or a resume.
struct Part {
  PauseManager* pauses;
  PauseManager::Blocks blocks;
};

std::vector<TagId> matching(const std::vector<std::string>& patterns, const std::set<TagId>& tags) {
  std::vector<TagId> found;
  std::copy_if(tags.begin(), tags.end(), std::back_inserter(found), [&](TagId tag) {
    return any_tag_matches(patterns, tag_name(tag));
  });
  return found;
}

std::set<TagId> live_tags(Heap& heap) {
  std::set<TagId> tags;
  for (const HeapTagInfo& tag : heap.view().tags()) {
    if (tag.blocks > 0) tags.insert(tag.tag);
  }
  return tags;
}

/// Errors: kInvalidArgument for the empty pattern, which matches only untagged memory.
Status named(const std::string& pattern) {
  if (!pattern.empty()) return {};
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      "pattern \"\": memory without a tag cannot be paused, because Spillway does not "
      "know when it is unused. Pass a tag, or \"*\" for all tagged memory.");
}

PauseResult result_of(const std::vector<Part>& parts) {
  PauseResult result;
  for (const Part& part : parts) {
    for (const PauseManager::Block& block : part.blocks) {
      ++result.blocks;
      result.bytes += block.size;
      if (block.copy) result.copied += block.size;
    }
  }
  return result;
}

}  // namespace

/// Why a pause or resume of these patterns found no memory.
Status PauseCoordinator::nothing_under(const std::vector<std::string>& patterns,
                                       const char* otherwise) const {
  std::string asked;
  for (const std::string& pattern : patterns)
    asked += (asked.empty() ? "\"" : ", \"") + pattern + "\"";
  std::set<TagId> tags;
  for (DeviceRuntime* const device : devices_.made())
    tags.merge(live_tags(device->heap()));
  if (!matching(patterns, tags).empty()) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "all memory with tags that match " + asked + " is " + otherwise);
  }
  std::string others;
  tags.erase(TagId::kUntagged);
  for (const TagId tag : tags)
    others += (others.empty() ? "\"" : ", \"") + tag_name(tag) + "\"";
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        "no memory of Spillway's heap has a tag that matches " + asked +
                            ". Tags with memory: " + (others.empty() ? "none" : others) + ".");
}

Result<PauseResult> PauseCoordinator::pause(const std::vector<PauseRequest>& requests) {
  SPILLWAY_RETURN_IF_ERROR(usable());
  for (const PauseRequest& request : requests) {
    SPILLWAY_RETURN_IF_ERROR(named(request.pattern));
  }
  const Lock operation(evictable().operation_mutex());
  std::vector<Part> parts;
  std::vector<std::string> patterns;
  for (const PauseRequest& request : requests) {
    patterns.push_back(request.pattern);
    for (DeviceRuntime* const device : devices_.made()) {
      const auto tags = matching({request.pattern}, live_tags(device->heap()));
      auto blocks = device->pauses().begin_pause(tags, request.contents);
      if (!blocks.ok()) {
        for (Part& part : parts)
          part.pauses->cancel_pause(std::move(part.blocks));
        return blocks.status();
      }
      parts.push_back({&device->pauses(), std::move(blocks).value()});
    }
  }
  PauseResult result = result_of(parts);
  if (result.blocks == 0) return nothing_under(patterns, "paused already");

  // No call below may fail.
  for (Part& part : parts)
    result.released += part.pauses->finish_pause(std::move(part.blocks));
  return result;
}

Result<PauseResult> PauseCoordinator::resume(const std::vector<std::string>& patterns) {
  SPILLWAY_RETURN_IF_ERROR(usable());
  for (const std::string& pattern : patterns) {
    SPILLWAY_RETURN_IF_ERROR(named(pattern));
  }
  const Lock operation(evictable().operation_mutex());
  // Memory being resumed must not be paused to make room for itself.
  for (const std::string& pattern : patterns)
    evictable().pin(pattern);
  auto resumed = resume_locked(patterns);
  for (const std::string& pattern : patterns)
    evictable().unpin(pattern);
  return resumed;
}

Result<PauseResult> PauseCoordinator::resume_locked(const std::vector<std::string>& patterns) {
  std::vector<Part> parts;
  for (DeviceRuntime* const device : devices_.made()) {
    PauseManager& pauses = device->pauses();
    const std::vector<TagId> tags = matching(patterns, pauses.tags());
    auto blocks = pauses.begin_resume(tags);
    // Each iteration pauses at least one more tag.
    const Bytes needed = pauses.bytes_under(tags);
    while (blocks.status().code() == Code::kOutOfDeviceMemory && device->evict_for(needed).ok()) {
      blocks = pauses.begin_resume(tags);
    }
    if (!blocks.ok()) {
      for (Part& part : parts)
        part.pauses->cancel_resume(std::move(part.blocks));
      if (blocks.status().code() != Code::kOutOfDeviceMemory) return blocks.status();
      return device->oom_status(pauses.bytes_under(tags), blocks.status());
    }
    parts.push_back({&pauses, std::move(blocks).value()});
  }
  const PauseResult result = result_of(parts);
  if (result.blocks == 0) {
    return nothing_under(patterns, "on the device already, so there is nothing to resume");
  }

  // No call below may fail.
  for (Part& part : parts)
    part.pauses->finish_resume(std::move(part.blocks));
  return result;
}

Result<PauseResult> PauseCoordinator::enter_resident(const std::string& pattern) {
  SPILLWAY_RETURN_IF_ERROR(usable());
  SPILLWAY_RETURN_IF_ERROR(named(pattern));
  const Lock operation(evictable().operation_mutex());
  const std::vector<DeviceRuntime*> devices = devices_.made();
  evictable().pin(pattern);
  const bool paused = std::any_of(devices.begin(), devices.end(), [&](DeviceRuntime* device) {
    return !matching({pattern}, device->pauses().tags()).empty();
  });
  if (!paused) return PauseResult{};
  auto resumed = resume_locked({pattern});
  if (!resumed.ok()) evictable().unpin(pattern);
  return resumed;
}

Status PauseCoordinator::usable() const {
  SPILLWAY_RETURN_IF_ERROR(devices_.settings());
  if (!in_forked_child()) return {};
  return SPILLWAY_ERROR(Code::kNotReady,
                        "this process was forked from one that uses Spillway: its memory cannot be "
                        "paused or resumed here. "
                        "Do it in the parent, or start the process with spawn.");
}

}  // namespace spillway
