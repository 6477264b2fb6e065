// SPDX-License-Identifier: Apache-2.0
#include "hooks/operator_span.h"

#include "allocator/driver/span_names.h"

namespace spillway::hooks {
namespace {

thread_local const OperatorSpan* running = nullptr;

}  // namespace

bool OperatorSpan::inside() {
  return running != nullptr;
}

OperatorSpan::OperatorSpan(const driver::Device& device,
                           driver::Stream stream,
                           std::string_view name,
                           TagId tag)
    : device_(device), stream_(stream) {
  {
    // An autograd thread has no context before its first work.
    const driver::CurrentDevice current(*device.api, device.context);
    begun_ = driver::SpanLog::instance().begin(device, stream, driver::Span::Kind::kOperator);
  }
  begun_.span.tag = tag;
  if (begun_.event != nullptr) begun_.span.name = driver::number_span_name(name);
  running = this;
}

OperatorSpan::~OperatorSpan() {
  if (running == this) running = nullptr;
  if (begun_.event == nullptr) return;
  const driver::CurrentDevice current(*device_.api, device_.context);
  driver::SpanLog::instance().end(device_, stream_, begun_);
}

}  // namespace spillway::hooks
