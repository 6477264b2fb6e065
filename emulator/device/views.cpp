// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/views.h"

namespace spillway::emulator {

void Views::remove(Range range) {
  for (auto view = first_overlap(views_, range); view != views_.end();
       view = first_overlap(views_, range)) {
    views_.erase(view);
  }
}

}  // namespace spillway::emulator
