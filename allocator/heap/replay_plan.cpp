// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/replay_plan.h"

#include "allocator/heap/placement.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace spillway {
namespace {

/// The requests of the replay plan, and the lifetimes of their addresses.
struct Tenants {
  std::vector<std::uint32_t> requests;
  std::vector<Lifetime> lives;  // by tenant
};

template <typename Suits>
Tenants tenants_of(const StepSequence& sequence, Suits suits) {
  Tenants tenants;
  const auto period = static_cast<std::uint32_t>(sequence.requests.size());
  for (std::uint32_t i = 0; i < period; ++i) {
    const StepRequest& request = sequence.requests[i];
    if (!request.offloadable || request.end == BlockEnd::kNone || !suits(request)) continue;
    const bool next = request.end == BlockEnd::kNextStep;
    tenants.requests.push_back(i);
    tenants.lives.push_back({request.size, i, next ? request.died + period : request.died});
  }
  return tenants;
}

/// As replay_plan_within: a block that is freed while others use it keeps its addresses while
/// `room` allows it.
std::vector<Lifetime> left_alone(const StepSequence& sequence, const Tenants& tenants, Bytes room) {
  const auto period = static_cast<std::uint32_t>(sequence.requests.size());
  std::vector<Lifetime> lives = tenants.lives;
  std::vector<std::vector<std::size_t>> freed(period + 1);  // tenants, by time of their free
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    const bool next = sequence.requests[tenants.requests[i]].end == BlockEnd::kNextStep;
    freed[next ? lives[i].died - period : lives[i].died].push_back(i);
    if (next) bytes += lives[i].size.count();
  }
  std::deque<std::size_t> waiting;  // freed, and still used by others
  std::size_t tenant = 0;
  for (std::uint32_t now = 0; now < period; ++now) {
    for (const std::size_t each : freed[now]) {
      const StepRequest& request = sequence.requests[tenants.requests[each]];
      if (request.fenced && request.end == BlockEnd::kOwnStep) {
        waiting.push_back(each);
      } else {
        bytes -= lives[each].size.count();
      }
    }
    if (tenant == lives.size() || tenants.requests[tenant] != now) continue;
    bytes += lives[tenant].size.count();
    for (; bytes > room.count() && !waiting.empty(); waiting.pop_front()) {
      Lifetime& first = lives[waiting.front()];
      first.died = now;
      bytes -= first.size.count();
    }
    ++tenant;
  }
  for (const std::size_t each : waiting)
    lives[each].died = period;
  return lives;
}

/// Number of attempts to make room for fragmentation.
constexpr int kMaxTries = 4;

ReplayPlan without_addresses(StepSequence sequence) {
  const std::size_t requests = sequence.requests.size();
  ReplayPlan plan;
  plan.sequence = std::move(sequence);
  plan.offsets.resize(requests);
  plan.pages.resize(requests);
  return plan;
}

/// Large enough that there are at most some thousand pages.
Bytes page_for(Bytes size, Bytes granularity) {
  constexpr std::uint64_t kMaxPages = 4096;
  Bytes page = granularity;
  while (page.count() * kMaxPages < size.count())
    page += page;
  return page;
}

}  // namespace

ReplayPlan replay_plan_of(StepSequence sequence) {
  const Tenants tenants = tenants_of(sequence, [](const StepRequest& request) {
    return !request.fenced && request.end == BlockEnd::kOwnStep;
  });
  const Placement placement = place(tenants.lives);
  ReplayPlan plan = without_addresses(std::move(sequence));
  plan.size = placement.size;
  for (std::size_t i = 0; i < tenants.requests.size(); ++i)
    plan.offsets[tenants.requests[i]] = placement.offsets[i];
  return plan;
}

ReplayPlan replay_plan_within(StepSequence sequence, Bytes room, Bytes granularity) {
  const Tenants tenants = tenants_of(sequence, [](const StepRequest&) { return true; });
  const auto period = static_cast<std::uint32_t>(sequence.requests.size());
  const Bytes least = peak_allocated(tenants.lives, period);
  Bytes page = page_for(std::max(room, least), granularity);
  Bytes allocated = std::max(room, least);
  PagedPlacement placement;
  Bytes placed_in;  // its page
  for (int tries = 0; tries < kMaxTries; ++tries) {
    PagedPlacement next = place_in_pages(left_alone(sequence, tenants, allocated), period, page);
    const Bytes size = next.size;
    if (tries == 0 || size < placement.size) {
      placement = std::move(next);
      placed_in = page;
    }
    if (size <= room) break;
    if (page > granularity) {  // large pages are partly empty
      page = granularity;
    } else if (allocated == least) {
      break;
    } else {
      allocated = std::max(least, saturating_sub(allocated, size - room));
    }
  }
  ReplayPlan plan = without_addresses(std::move(sequence));
  plan.page = placed_in;
  plan.plain = false;
  plan.size = placement.size;
  for (std::size_t i = 0; i < tenants.requests.size(); ++i) {
    const std::uint32_t request = tenants.requests[i];
    plan.pages[request] = std::move(placement.pages[i]);
    if (plan.pages[request].empty()) plan.offsets[request] = placement.offsets[i];
  }
  return plan;
}

}  // namespace spillway
