// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/order_checker.h"
#include "emulator/device/views.h"

#include <string>
#include <vector>

namespace spillway::emulator {

/// Who knows what: a clock for every stream and every host thread, and what makes one learn from
/// another. What orders two host threads is in `threads`. Does nothing where the checker is off.
/// Threads: under the machine's lock. Ownership: borrows the checker.
class Ordering {
 public:
  Ordering(OrderChecker& checker, bool check);

  /// The stream comes after what the calling thread knows.
  Actor add_stream(std::string name);
  /// The stream is gone: its number may go to another.
  void remove_stream(Actor stream) const;

  /// What `later` is given next comes after everything that `earlier` has been given.
  void order_after(Actor later, Actor earlier);
  /// The same for what an event has recorded.
  void order_after(Actor later, const VectorClock& point);

  /// What an event records now.
  [[nodiscard]] VectorClock point(Actor stream) const;

  /// The calling thread has waited, for a stream or for an event.
  void host_learns(Actor stream);
  void host_learns(const VectorClock& point) const;

  /// A new operation on `stream`: it knows what the calling thread knows.
  void begin(Actor stream);

  /// The operation on `stream`, or the calling thread, reads or writes. `operation` must live
  /// indefinitely ; tag and place are the calling thread's.
  void access(Actor stream, const Strided& bytes, bool write, const char* operation);
  void host_access(const Strided& bytes, bool write, const char* operation);
  /// The bytes have gone back to the driver.
  void forget(Range range);

  /// What happens at the addresses of `view` happens to memory that is mapped at `original` too.
  void add_view(Range view, std::uintptr_t original) {
    if (check_) views_.add(view, original);
  }

  /// Whether the range was such a view; it is none any more. What happened there stays known.
  bool end_view(Range range) { return check_ && views_.remove(range); }

 private:
  OrderChecker& checker_;
  const bool check_;
  std::vector<VectorClock> clocks_;  // of streams, by actor
  Views views_;
};

}  // namespace spillway::emulator
