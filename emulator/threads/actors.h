// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/vector_clock.h"

namespace spillway::emulator {

/// The numbers of all actors, host threads and streams alike. A released number is assigned to an
/// actor that `knows` everything its former owner did. Its epochs continue, so the new owner counts
/// as ordered after the old one.
/// Requires: the new owner's clock begins with `knows`.
/// Threads: safe, without a lock that the program could observe.
Actor take_actor(const VectorClock& knows);
void release_actor(Actor actor);

/// Counts one more operation of the actor in its own `clock`.
void advance(Actor actor, VectorClock& clock);

/// Joins `clock` with all operations so far.
void learn_everything(VectorClock& clock);

/// Prevents assignments and releases until the unlock.
void lock_actors();
void unlock_actors();

}  // namespace spillway::emulator
