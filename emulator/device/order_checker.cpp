// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/order_checker.h"

#include "emulator/device/counts.h"

#include <cstdio>
#include <utility>

namespace spillway::emulator {
namespace {

constexpr std::size_t kKeptReports = 1024;
constexpr int kPrintedReports = 20;

}  // namespace

void OrderChecker::name_actor(Actor actor, std::string name) {
  if (actor >= actors_.size()) actors_.resize(actor + 1);
  actors_[actor] = std::move(name);
}

void OrderChecker::access(
    Actor actor, const VectorClock& clock, Range range, bool write, const char* operation) {
  if (range.bytes() == 0) return;
  split(range.begin);
  split(range.end);
  const Access now{actor, clock.of(actor), operation};
  const auto unknown = [&](const Access& before) {
    return before.epoch != 0 && before.actor != actor && clock.of(before.actor) < before.epoch;
  };
  const auto first = segments_.lower_bound(range.begin);
  const auto last = segments_.lower_bound(range.end);
  bool told = false;  // one report for one access
  for (auto each = first; each != last && !told; ++each) {
    const Segment& segment = each->second;
    if (unknown(segment.write)) {
      tell(write ? "write after write" : "read after write", now, segment.write, segment.range);
      told = true;
    }
    if (!write) continue;
    for (const Access& before : segment.reads) {
      if (told || !unknown(before)) continue;
      tell("write after read", now, before, segment.range);
      told = true;
    }
  }
  if (write) {
    segments_.erase(first, last);
    segments_.emplace(range.begin, Segment{range, now, {}});
  } else {
    read(first, range, now);
  }
}

void OrderChecker::read(Segments::iterator first, Range range, const Access& access) {
  std::uintptr_t at = range.begin;
  auto each = first;
  while (at < range.end) {
    if (each == segments_.end() || each->first > at) {  // nobody was here yet
      const std::uintptr_t end =
          each == segments_.end() ? range.end : std::min(range.end, each->first);
      segments_.emplace_hint(each, at, Segment{{at, end}, {}, {access}});
      at = end;
      continue;
    }
    auto& reads = each->second.reads;
    const auto mine = std::find_if(reads.begin(), reads.end(), [&](const Access& other) {
      return other.actor == access.actor;
    });
    if (mine == reads.end()) {
      reads.push_back(access);
    } else {
      *mine = access;
    }
    at = each->second.range.end;
    ++each;
  }
}

void OrderChecker::forget(Range range) {
  split(range.begin);
  split(range.end);
  segments_.erase(segments_.lower_bound(range.begin), segments_.lower_bound(range.end));
}

void OrderChecker::take_reports(OrderChecker& from) {
  for (std::string& text : from.reports_) {
    if (reports_.size() < kKeptReports) reports_.push_back(std::move(text));
  }
  from.reports_.clear();
}

const char* OrderChecker::report(std::size_t index) const {
  return index < reports_.size() ? reports_[index].c_str() : nullptr;
}

void OrderChecker::split(std::uintptr_t at) {
  const auto found = first_overlap(segments_, Range{at, at + 1});
  if (found == segments_.end() || found->first == at) return;
  Segment upper = found->second;
  upper.range.begin = at;
  found->second.range.end = at;
  segments_.emplace(at, std::move(upper));
}

void OrderChecker::tell(const char* kind, const Access& now, const Access& before, Range range) {
  unordered().add();
  char place[64];
  std::snprintf(place, sizeof place, "%zu bytes at %p", range.bytes(), range.at());
  std::string text = std::string("spillway-check: unordered ") + kind + ": \"" + now.operation +
                     "\" on " + actors_[now.actor] + " is not ordered after \"" + before.operation +
                     "\" on " + actors_[before.actor] + ": " + place;
  if (printed_ < kPrintedReports) {
    ++printed_;
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  if (reports_.size() < kKeptReports) reports_.push_back(std::move(text));
}

}  // namespace spillway::emulator
