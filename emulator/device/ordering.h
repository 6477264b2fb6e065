// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/order_checker.h"
#include "emulator/device/views.h"

#include <string>
#include <vector>

namespace spillway::emulator {

/// The happens-before order: a vector clock for every stream and every host thread, and the
/// operations that join clocks. The order between host threads is in `threads`. Does nothing while
/// the checker is off.
/// Threads: under the machine's lock.
/// Ownership: borrows the checker.
class Ordering {
 public:
  Ordering(OrderChecker& checker, bool check);

  /// Adds a stream; it is ordered after the calling thread's knowledge.
  Actor add_stream(std::string name);
  /// Removes the stream; its number may be reused.
  void remove_stream(Actor stream) const;

  /// Orders later work of `later` after all work submitted to `earlier`.
  void order_after(Actor later, Actor earlier);
  /// Likewise for a recorded event.
  void order_after(Actor later, const VectorClock& point);

  /// The clock that an event records now.
  [[nodiscard]] VectorClock point(Actor stream) const;

  /// The calling thread has waited for a stream or an event.
  void host_learns(Actor stream);
  void host_learns(const VectorClock& point) const;

  /// Begins an operation on `stream`; it gets the knowledge of the calling thread.
  void begin(Actor stream);

  /// Records a read or write by the operation on `stream`, or by the calling thread. `operation`
  /// must outlive the process; tag and location are the calling thread's.
  void access(Actor stream, const Strided& bytes, bool write, const char* operation);
  void host_access(const Strided& bytes, bool write, const char* operation);
  /// The bytes were released to the driver.
  void forget(Range range);

  /// Accesses to the addresses of `view` are accesses to the memory mapped at `original` too.
  void add_view(Range view, std::uintptr_t original) {
    if (check_) views_.add(view, original);
  }

  /// Ends such a view. Recorded accesses stay.
  void end_view(Range range) {
    if (check_) views_.remove(range);
  }

  /// Ends the first mapping of memory that has `views`, of which the first one replaces it.
  void end_original(Range original, const std::vector<std::uintptr_t>& views);

 private:
  OrderChecker& checker_;
  const bool check_;
  std::vector<VectorClock> clocks_;  // of streams, by actor
  Views views_;
};

}  // namespace spillway::emulator
