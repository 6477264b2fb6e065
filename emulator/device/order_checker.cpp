// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/order_checker.h"

#include "allocator/base/file.h"
#include "emulator/device/counts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <tuple>
#include <utility>

namespace spillway::emulator {
namespace {

constexpr std::size_t kKeptRaces = 1024;
constexpr std::size_t kPrintedRaces = 20;
constexpr std::size_t kMaxAccesses = 32;  // of one segment; a race with an older one is missed

std::string address(std::uintptr_t at) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, at);
  return text;
}

void append_byte(const std::string& file) {
  const File opened(open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!opened.open()) return;  // the process that requested the count has ended
  std::ignore = write(opened.number(), ".", 1);
}

/// The line about one of the two operations.
std::string detail(const AccessSite& deed, bool write, std::size_t bytes) {
  std::string text = std::string("\n  \"") + deed.operation + (write ? "\" writes " : "\" reads ") +
                     std::to_string(bytes) + " bytes";
  if (deed.tag != nullptr) text += std::string(", tag ") + deed.tag;
  if (deed.location != nullptr) text += std::string(": ") + deed.location;
  return text;
}

}  // namespace

void OrderChecker::name_actor(Actor actor, std::string name) {
  if (actor >= actors_.size()) actors_.resize(actor + 1);
  actors_[actor] = std::move(name);
}

// NOLINTNEXTLINE(readability-function-size,readability-function-cognitive-complexity): one rule
void OrderChecker::access(Actor actor,
                          const VectorClock& clock,
                          const Strided& bytes,
                          bool write,
                          const AccessSite& deed) {
  const Range range = bytes.extent();
  if (range.bytes() == 0) return;
  split(range.begin);
  split(range.end);
  fill_gaps(range);
  Access now{actor, clock.of(actor), range, bytes.bytes(), deed, nullptr};
  if (!bytes.is_dense()) now.rows = std::make_shared<const Strided>(bytes);

  const auto meets = [&](const Access& before, Range within) {
    if (before.rows != nullptr) return before.rows->meets(bytes, within);
    return bytes.is_dense() || bytes.meets(within, within);
  };
  const auto unordered_with = [&](const Access& before, Range within) {
    return before.actor != actor && clock.of(before.actor) < before.epoch && meets(before, within);
  };
  const auto first = segments_.lower_bound(range.begin);
  const auto last = segments_.lower_bound(range.end);
  bool reported = false;  // one race for one access
  for (auto each = first; each != last && !reported; ++each) {
    const Segment& segment = each->second;
    for (const Access& before : segment.writes) {
      if (reported || !unordered_with(before, segment.range)) continue;
      report_race(write ? "write after write" : "read after write", write, now, before);
      reported = true;
    }
    if (!write) continue;
    for (const Access& before : segment.reads) {
      if (reported || !unordered_with(before, segment.range)) continue;
      report_race("write after read", write, now, before);
      reported = true;
    }
  }
  if (write && bytes.is_dense()) {  // earlier accesses are no longer relevant
    segments_.erase(std::next(first), last);
    first->second.range = range;
    first->second.reads.clear();
    first->second.writes.assign(1, now);
    return;
  }
  for (auto each = first; each != last; ++each)
    keep(write ? each->second.writes : each->second.reads, now, clock);
}

void OrderChecker::keep(std::vector<Access>& kept, const Access& now, const VectorClock& clock) {
  const auto covered = [&](const Access& before) {
    const bool mine = before.actor == now.actor;
    if (now.rows == nullptr) return mine;
    return mine && before.rows != nullptr && *before.rows == *now.rows;
  };
  kept.erase(std::remove_if(kept.begin(), kept.end(), covered), kept.end());
  if (kept.size() == kMaxAccesses) {
    const auto passed = std::find_if(kept.begin(), kept.end(), [&](const Access& before) {
      return clock.of(before.actor) >= before.epoch;
    });
    kept.erase(passed == kept.end() ? kept.begin() : passed);
  }
  kept.push_back(now);
}

void OrderChecker::forget(Range range) {
  split(range.begin);
  split(range.end);
  segments_.erase(segments_.lower_bound(range.begin), segments_.lower_bound(range.end));
}

void OrderChecker::move(Range range, std::uintptr_t to) {
  split(range.begin);
  split(range.end);
  const auto moved = [&](Range from) {
    const std::uintptr_t begin = from.begin - range.begin + to;
    return Range{begin, begin + from.bytes()};
  };
  forget(moved(range));
  const auto first = segments_.lower_bound(range.begin);
  const auto last = segments_.lower_bound(range.end);
  std::vector<Segment> segments;
  for (auto each = first; each != last; ++each)
    segments.push_back(std::move(each->second));
  segments_.erase(first, last);
  for (Segment& segment : segments) {
    segment.range = moved(segment.range);
    for (std::vector<Access>* const accesses : {&segment.writes, &segment.reads}) {
      for (Access& access : *accesses) {
        access.range = moved(access.range);
        if (access.rows != nullptr) {
          const std::uintptr_t begin = moved(access.rows->extent()).begin;
          access.rows = std::make_shared<const Strided>(access.rows->moved_to(begin));
        }
      }
    }
    segments_.emplace(segment.range.begin, std::move(segment));
  }
}

void OrderChecker::take_races(OrderChecker& from) {
  for (Race& race : from.races_)
    add(std::move(race));
  from.clear();
}

const char* OrderChecker::race(std::size_t index) {
  if (index >= races_.size()) return nullptr;
  Race& race = races_[index];
  race.shown = race.text;
  if (race.count > 1) race.shown += "\n  " + std::to_string(race.count) + " times";
  return race.shown.c_str();
}

void OrderChecker::clear() {
  races_.clear();
  known_.clear();
}

void OrderChecker::print_end() const {
  for (std::size_t i = 0; i < std::min(races_.size(), kPrintedRaces); ++i) {
    if (races_[i].count == 1) continue;
    std::fprintf(stderr,
                 "spillway-check: %zu times %s\n",
                 races_[i].count,
                 races_[i].text.substr(sizeof "spillway-check:").c_str());
  }
  if (file_.empty())
    std::fprintf(stderr, "spillway-check: %zu race%s\n", count_, count_ == 1 ? "" : "s");
}

void OrderChecker::split(std::uintptr_t at) {
  const auto found = first_overlap(segments_, Range{at, at + 1});
  if (found == segments_.end() || found->first == at) return;
  Segment upper = found->second;
  upper.range.begin = at;
  found->second.range.end = at;
  segments_.emplace_hint(std::next(found), at, std::move(upper));
}

/// Creates segments where there are none. Requires: no segment crosses an end of the range.
void OrderChecker::fill_gaps(Range range) {
  std::uintptr_t at = range.begin;
  auto each = segments_.lower_bound(range.begin);
  while (at < range.end) {
    if (each != segments_.end() && each->first == at) {
      at = each->second.range.end;
      ++each;
      continue;
    }
    const std::uintptr_t end =
        each == segments_.end() ? range.end : std::min(range.end, each->first);
    segments_.emplace_hint(each, at, Segment{{at, end}, {}, {}});
    at = end;
  }
}

void OrderChecker::report_race(const char* kind,
                               bool write,
                               const Access& now,
                               const Access& before) {
  unordered().add();
  const bool wrote = std::string_view(kind).ends_with("write");
  const std::string location =
      detail(now.deed, write, now.bytes) + detail(before.deed, wrote, before.bytes);
  if (const auto known = known_.find(kind + location); known != known_.end()) {
    if (known->second < races_.size()) ++races_[known->second].count;
    return;
  }
  const auto view = [](const Access& of) {
    return of.rows ? *of.rows : Strided(of.range);
  };
  const Strided::Common common = view(now).common(view(before));
  add({kind + location,
       std::string("spillway-check: unordered ") + kind + ": \"" + now.deed.operation + "\" on " +
           actors_[now.actor] + " is not ordered after \"" + before.deed.operation + "\" on " +
           actors_[before.actor] + ": " + std::to_string(common.bytes) + " bytes at " +
           address(common.first) + location,
       1,
       {}});
}

void OrderChecker::add(Race&& race) {
  const auto [known, fresh] = known_.emplace(race.key, races_.size());
  if (!fresh) {
    if (known->second < races_.size()) races_[known->second].count += race.count;
    return;
  }
  ++count_;
  if (!file_.empty()) append_byte(file_);
  if (prints_ && count_ <= kPrintedRaces) std::fprintf(stderr, "%s\n", race.text.c_str());
  if (races_.size() < kKeptRaces) races_.push_back(std::move(race));
}

}  // namespace spillway::emulator
