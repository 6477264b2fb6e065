// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// Marks this thread as inside an intercepted call for a scope. What CUDA calls from there is
/// CUDA's own business.
class Reentry {
 public:
  Reentry();
  ~Reentry();
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;

  /// True where this call is the program's own, and observing is on: neither SPILLWAY_DISABLE=1 nor
  /// a forked child.
  [[nodiscard]] bool observed() const { return observed_; }

 private:
  bool observed_;
};

}  // namespace spillway::interpose
