// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/span_log.h"

#include <string_view>

namespace spillway::hooks {

/// Times the outermost operator, or backward node, of this thread. The work that it submits to its
/// stream is timed by the device's events (driver::SpanLog, Span::Kind::kOperator).
///
/// Threads: must end on the thread that created it; otherwise it is not timed.
class OperatorSpan {
 public:
  /// Whether this thread is in one. Operators inside belong to it and create none.
  static bool inside();

  /// `name`: PyTorch's name of it, as in its profiler. `tag`: the tag of its work.
  /// Stream: one event now and one at the end; the host does not wait.
  OperatorSpan(const driver::Device& device,
               driver::Stream stream,
               std::string_view name,
               TagId tag);
  ~OperatorSpan();
  OperatorSpan(const OperatorSpan&) = delete;
  OperatorSpan& operator=(const OperatorSpan&) = delete;

 private:
  const driver::Device& device_;
  const driver::Stream stream_;
  driver::SpanLog::Begun begun_;
};

}  // namespace spillway::hooks
