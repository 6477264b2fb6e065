// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/vector_clock.h"

namespace spillway::emulator {

/// The numbers of all actors, host threads and streams alike. A number that was released goes to
/// one who asks and `knows` all that its old owner did: its epochs go on, so the new owner counts
/// as ordered behind the old one. Requires: the new owner's clock begins with `knows`. Threads:
/// safe, and no lock that the program could see.
Actor take_actor(const VectorClock& knows);
void release_actor(Actor actor);

/// The actor does one thing more, which `clock`, its own, knows of.
void advance(Actor actor, VectorClock& clock);

/// `clock` learns of everything that anybody has done until now.
void learn_everything(VectorClock& clock);

/// Nothing takes or releases in between.
void lock_actors();
void unlock_actors();

}  // namespace spillway::emulator
