// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/ordering.h"

#include "emulator/device/thread_state.h"
#include "emulator/threads/host_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace spillway::emulator {
namespace {

std::string name_of_this_thread(Actor actor) {
  if (actor == 0) return "the host";
  std::array<char, 16> given{};
  pthread_getname_np(pthread_self(), given.data(), given.size());
  return "host thread " + std::to_string(gettid()) + " (" + given.data() + ")";
}

AccessSite deed(const char* operation) {
  return {operation, thread_state().tag, thread_state().location};
}

}  // namespace

Ordering::Ordering(OrderChecker& checker, bool check) : checker_(checker), check_(check) {
  if (check_) follow_threads();
}

Actor Ordering::add_stream(std::string name) {
  if (!check_) return 0;
  const VectorClock& knows = this_host_thread().clock;
  const Actor actor = take_actor(knows);
  checker_.name_actor(actor, std::move(name));
  if (actor >= clocks_.size()) clocks_.resize(actor + 1);
  if (actor != kSharedActor) clocks_[actor].forget_all();
  clocks_[actor].join(knows);
  return actor;
}

void Ordering::remove_stream(Actor stream) const {
  if (check_) release_actor(stream);
}

void Ordering::order_after(Actor later, Actor earlier) {
  if (check_) clocks_[later].join(clocks_[earlier]);
}

void Ordering::order_after(Actor later, const VectorClock& point) {
  if (check_) clocks_[later].join(point);
}

VectorClock Ordering::point(Actor stream) const {
  return check_ ? clocks_[stream] : VectorClock();
}

void Ordering::host_learns(Actor stream) {
  if (check_) host_learns(clocks_[stream]);
}

void Ordering::host_learns(const VectorClock& point) const {
  if (check_) this_host_thread().clock.join(point);
}

void Ordering::begin(Actor stream) {
  if (!check_) return;
  clocks_[stream].join(this_host_thread().clock);
  advance(stream, clocks_[stream]);
}

void Ordering::access(Actor stream, const Strided& bytes, bool write, const char* operation) {
  if (!check_) return;
  views_.originals(bytes, [&](const Strided& original) {
    checker_.access(stream, clocks_[stream], original, write, deed(operation));
  });
}

void Ordering::host_access(const Strided& bytes, bool write, const char* operation) {
  if (!check_) return;
  HostThread& thread = this_host_thread();
  if (!thread.named) checker_.name_actor(thread.actor, name_of_this_thread(thread.actor));
  thread.named = true;
  // A function on a stream is the queued operation, not another one.
  if (!thread.is_stream) advance(thread.actor, thread.clock);
  views_.originals(bytes, [&](const Strided& original) {
    checker_.access(thread.actor, thread.clock, original, write, deed(operation));
  });
}

void Ordering::end_original(Range original, const std::vector<std::uintptr_t>& views) {
  if (!check_) return;
  const auto range_at = [&](std::uintptr_t at) {
    return Range{at, at + original.bytes()};
  };
  const std::uintptr_t first = views.front();
  views_.remove(range_at(first));
  for (const std::uintptr_t view : views)
    if (view != first) views_.add(range_at(view), first);
  checker_.move(original, first);
}

void Ordering::forget(Range range) {
  if (check_) checker_.forget(range);
}

}  // namespace spillway::emulator
