// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <vector>

namespace spillway {

/// By how much less than the budget a step is planned, because what a device holds is more than
/// what is live in it. Threads: confined.
class HeldMargin {
 public:
  [[nodiscard]] Bytes bytes() const { return bytes_; }

  /// A step that followed a plan for `budget` less bytes() has held so much at its peak; `settled`:
  /// its memory was where it had been before. `least`: no plan needs less. True where bytes() has
  /// changed: it grows as long as more than the budget is held; and where the least plan has held
  /// more as well, it is what held least, for the least margin.
  bool held(Bytes most, Bytes budget, bool settled, bool least);

 private:
  struct Tried {
    Bytes margin;
    Bytes held;
    bool settled;
  };

  void note(Bytes most, bool settled);
  [[nodiscard]] Bytes best(Bytes alike) const;

  Bytes bytes_;
  std::vector<Tried> tried_;
  int in_vain_ = 0;  // settled steps of the least plan that held more than the budget
  bool chosen_ = false;
};

}  // namespace spillway
