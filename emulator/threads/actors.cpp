// SPDX-License-Identifier: Apache-2.0
#include "emulator/threads/actors.h"

#include "emulator/threads/spin_lock.h"

#include <array>
#include <atomic>

namespace spillway::emulator {
namespace {

/// Plain arrays: threads start and end before the machine exists and after its destruction.
struct Actors {
  SpinLock lock;
  std::array<Actor, kMaxActors> free{};
  std::size_t free_count = 0;
  std::atomic<Actor> next{0};
  std::array<std::atomic<std::uint64_t>, kMaxActors> epochs{};
};

constinit Actors actors;

}  // namespace

Actor take_actor(const VectorClock& knows) {
  const SpinGuard guard(actors.lock);
  for (std::size_t i = actors.free_count; i-- > 0;) {
    const Actor actor = actors.free[i];
    if (knows.of(actor) < actors.epochs[actor].load()) continue;
    actors.free[i] = actors.free[--actors.free_count];
    return actor;
  }
  const Actor next = actors.next.load();
  if (next == kMaxActors) return kSharedActor;
  actors.next.store(next + 1);
  return next;
}

void release_actor(Actor actor) {
  if (actor == kSharedActor) return;
  const SpinGuard guard(actors.lock);
  actors.free[actors.free_count++] = actor;
}

void advance(Actor actor, VectorClock& clock) {
  clock.learn(actor, actors.epochs[actor].fetch_add(1) + 1);
}

void learn_everything(VectorClock& clock) {
  for (Actor actor = 0; actor < actors.next.load(); ++actor)
    clock.learn(actor, actors.epochs[actor].load());
}

void lock_actors() {
  actors.lock.lock();
}

void unlock_actors() {
  actors.lock.unlock();
}

}  // namespace spillway::emulator
