// SPDX-License-Identifier: Apache-2.0
#include "hooks/launch_recorder.h"

#include "allocator/driver/span_log.h"

namespace spillway::hooks {
namespace {

/// The launch in progress on this thread. If the watch stopped before its end, it stays until the
/// thread's next launch.
struct Open {
  std::uint32_t call;
  driver::Device device;
  driver::Stream stream;
  driver::SpanLog::Begun begun;
};

thread_local std::optional<Open> current;

bool succeeded(const CUpti_CallbackData& call) {
  return call.functionReturnValue == nullptr ||
         *static_cast<const CUresult*>(call.functionReturnValue) == CUDA_SUCCESS;
}

}  // namespace

void LaunchRecorder::begin(const driver::Api& driver) {
  driver::SpanLog::instance().forget_kernels();
  const Lock lock(mutex_);
  driver_ = &driver;
  contexts_.clear();
  launches_ = 0;
  untimed_ = 0;
}

void LaunchRecorder::entered(CUstream stream, const CUpti_CallbackData& call) {
  launches_.fetch_add(1, std::memory_order_relaxed);
  driver::SpanLog& log = driver::SpanLog::instance();
  if (current) log.drop(current->device, current->begun);
  current.reset();
  const auto device = device_of(call.context);
  if (!device) return missed();
  const std::uint32_t name =
      call.symbolName == nullptr ? 0 : driver::number_span_name(call.symbolName);
  const driver::Stream on(stream, device->id);
  driver::SpanLog::Begun begun = log.begin(*device, on, driver::Span::Kind::kKernel);
  if (begun.event == nullptr) return missed();
  begun.span.name = name;
  current.emplace(Open{call.correlationId, *device, on, begun});
}

void LaunchRecorder::left(const CUpti_CallbackData& call) {
  if (!current || current->call != call.correlationId) return;
  const Open launch = *current;
  current.reset();
  driver::SpanLog& log = driver::SpanLog::instance();
  if (!succeeded(call)) {
    log.drop(launch.device, launch.begun);
    missed();
  } else if (!log.end(launch.device, launch.stream, launch.begun)) {
    missed();
  }
}

std::optional<driver::Device> LaunchRecorder::device_of(CUcontext context) {
  const Lock lock(mutex_);
  const auto [at, unknown] = contexts_.try_emplace(context);
  if (!unknown) return at->second;
  CUdevice ordinal = 0;
  if (driver_->CtxGetDevice(&ordinal) != CUDA_SUCCESS) return std::nullopt;
  const auto device = driver::Device::open(*driver_, DeviceId{ordinal});
  if (device.ok() && device.value().context == context) at->second = device.value();
  return at->second;
}

std::vector<Launch> LaunchRecorder::take() {
  const std::vector<driver::Span> spans = driver::SpanLog::instance().take_kernels();
  std::vector<Launch> launches;
  launches.reserve(spans.size());
  for (const driver::Span& span : spans) {
    launches.push_back({driver::span_name(span.name),
                        span.device,
                        span.stream,
                        span.submitted,
                        span.begin,
                        span.end});
  }
  return launches;
}

LaunchCounts LaunchRecorder::counts() const {
  return {launches_.load(std::memory_order_relaxed), untimed_.load(std::memory_order_relaxed)};
}

}  // namespace spillway::hooks
