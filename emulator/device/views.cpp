// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/views.h"

namespace spillway::emulator {

bool Views::remove(Range range) {
  bool any = false;
  for (auto view = first_overlap(views_, range); view != views_.end();
       view = first_overlap(views_, range)) {
    views_.erase(view);
    any = true;
  }
  return any;
}

}  // namespace spillway::emulator
