// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/ordering.h"

#include <utility>

namespace spillway::emulator {

Ordering::Ordering(OrderChecker& checker, bool check) : checker_(checker), check_(check) {
  checker_.add_actor("the host");
  clocks_.resize(kHost + 1);
}

Actor Ordering::add_stream(std::string name) {
  const Actor actor = checker_.add_actor(std::move(name));
  clocks_.resize(actor + 1);
  return actor;
}

void Ordering::order_after(Actor later, Actor earlier) {
  order_after(later, clocks_[earlier]);
}

void Ordering::order_after(Actor later, const VectorClock& point) {
  if (check_) clocks_[later].join(point);
}

VectorClock Ordering::point(Actor stream) const {
  return check_ ? clocks_[stream] : VectorClock();
}

void Ordering::host_learns(Actor stream) {
  host_learns(clocks_[stream]);
}

void Ordering::host_learns(const VectorClock& point) {
  if (check_) clocks_[kHost].join(point);
}

void Ordering::begin(Actor stream) {
  if (!check_) return;
  clocks_[stream].join(clocks_[kHost]);
  clocks_[stream].advance(stream);
}

void Ordering::access(Actor stream, Range range, bool write, const char* operation) {
  if (check_) checker_.access(stream, clocks_[stream], range, write, operation);
}

void Ordering::host_access(Range range, bool write, const char* operation) {
  if (!check_) return;
  clocks_[kHost].advance(kHost);
  checker_.access(kHost, clocks_[kHost], range, write, operation);
}

void Ordering::forget(Range range) {
  if (check_) checker_.forget(range);
}

}  // namespace spillway::emulator
