// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/run_log.h"

#include "allocator/device/fork.h"
#include "allocator/driver/span_log.h"
#include "allocator/lifetime/memory_events.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "hooks/operator_span.h"
#include "torch_glue/base/streams.h"

#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <memory>
#include <mutex>
#include <string_view>

namespace spillway {
namespace {

struct Call final : at::ObserverContext {
  Call(const driver::Device& device, driver::Stream stream, const char* name)
      : span(device, stream, name, current_tag()) {}

  hooks::OperatorSpan span;
};

/// The engine's call of a node, around the node itself, which alone knows its forward operator.
bool is_call_of_node(const at::RecordFunction& call) {
  constexpr std::string_view kBegin = "autograd::engine::evaluate_function: ";
  return std::string_view(call.name()).substr(0, kBegin.size()) == kBegin;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  if (!driver::SpanLog::on() || hooks::OperatorSpan::inside() || in_forked_child()) return nullptr;
  if (is_call_of_node(call)) return nullptr;
  const DeviceId id{c10::cuda::current_device()};
  const auto device = Runtime::instance().device(id);
  if (!device.ok()) return nullptr;
  return std::make_unique<Call>(
      device.value()->device(), stream_of(current_stream(id)), call.name());
}

}  // namespace

void time_operators() {
  static const at::CallbackHandle callback =
      at::addGlobalCallback(at::RecordFunctionCallback(&begin).scopes(
          {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  static_cast<void>(callback);
}

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr Bytes kBlock{512};  // that allocator rounds up to this

void follow(const caching::TraceEntry& event) {
  if (!MemoryEvents::on()) return;
  const DeviceId device{event.device_};
  if (event.action_ == caching::TraceEntry::ALLOC) {
    MemoryEvents::born({.device = device,
                        .address = event.addr_,
                        .requested = Bytes{event.size_},
                        .rounded = Bytes{event.size_}.rounded_up(kBlock)});
  } else if (event.action_ == caching::TraceEntry::FREE_REQUESTED) {
    MemoryEvents::died(device, event.addr_);
  }
}

}  // namespace

void follow_torch_memory() {
  static std::once_flag once;
  std::call_once(once, [] { caching::attachAllocatorTraceTracker(follow); });
}

}  // namespace spillway
