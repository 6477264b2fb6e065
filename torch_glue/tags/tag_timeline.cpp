// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/tags/tag_timeline.h"

#include "allocator/base/mutex.h"
#include "allocator/tag/tag.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>

namespace spillway {
namespace {

constexpr std::size_t kMaxChanges = 16384;

class TagHistory {
 public:
  void note(std::uint64_t next, TagId tag) {
    const Lock lock(mutex_);
    while (!changes_.empty() && changes_.back().from >= next)
      changes_.pop_back();  // no node was created under it
    const TagId before = changes_.empty() ? TagId::kUntagged : changes_.back().tag;
    if (before == tag) return;
    if (changes_.size() == kMaxChanges) changes_.pop_front();
    changes_.push_back({next, tag});
  }

  TagId at(std::uint64_t number) {
    const Lock lock(mutex_);
    const auto after = std::upper_bound(
        changes_.begin(), changes_.end(), number, [](std::uint64_t wanted, const Change& change) {
          return wanted < change.from;
        });
    return after == changes_.begin() ? TagId::kUntagged : std::prev(after)->tag;
  }

 private:
  struct Change {
    std::uint64_t from;  // the first node under it
    TagId tag;
  };

  Mutex mutex_;
  std::deque<Change> changes_ SPILLWAY_GUARDED_BY(mutex_);
};

/// The timelines by thread. Those of ended threads stay, because graphs may query them: autograd
/// never reuses a thread's number.
class Timelines {
 public:
  static Timelines& instance() {
    static auto* const timelines = new Timelines;
    return *timelines;
  }

  std::shared_ptr<TagHistory> make(std::uint64_t thread) {
    const Lock lock(mutex_);
    auto& timeline = by_thread_[thread];
    if (!timeline) timeline = std::make_shared<TagHistory>();
    return timeline;
  }

  std::shared_ptr<TagHistory> find(std::uint64_t thread) {
    const Lock lock(mutex_);
    const auto found = by_thread_.find(thread);
    return found == by_thread_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<TagHistory>> by_thread_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace

void note_tag() {
  thread_local const std::shared_ptr<TagHistory> mine =
      Timelines::instance().make(at::RecordFunction::currentThreadId());
  mine->note(at::sequence_number::peek(), current_tag());
}

TagId tag_at(std::uint64_t thread, std::uint64_t number) {
  const auto timeline = Timelines::instance().find(thread);
  return timeline ? timeline->at(number) : TagId::kUntagged;
}

}  // namespace spillway
