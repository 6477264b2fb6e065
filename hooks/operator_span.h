// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/span_log.h"

#include <string_view>

namespace spillway::hooks {

/// The outermost operator, or node of a backward pass, that runs on this thread: what it gives its
/// stream to do is timed by the device's own events (driver::SpanLog, Span::Kind::kOperator).
///
/// Threads: the one that made it ends it; the end on another one is not timed.
class OperatorSpan {
 public:
  /// Whether this thread is in one: those inside it are a part of it, and make none.
  static bool inside();

  /// `name`: of PyTorch's, as its profiler has it. `tag`: whose work it is. Stream: one event now
  /// and one at the end; the host does not wait.
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
