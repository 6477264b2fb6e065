// SPDX-License-Identifier: Apache-2.0
#include "hooks/kernel_names/launch_recorder.h"

#include "allocator/driver/span_log.h"
#include "allocator/driver/span_names.h"

#include <cupti.h>  // the only header that gives the parameters of driver functions

#include <array>

namespace spillway::hooks {
namespace {

template <typename Parameters>
CUstream of_parameters(const void* parameters) {
  return static_cast<const Parameters*>(parameters)->hStream;
}

template <typename Parameters>
CUstream of_configuration(const void* parameters) {
  return static_cast<const Parameters*>(parameters)->config->hStream;
}

/// For functions in which a null stream is the calling thread's own.
template <CUstream (*stream)(const void*)>
CUstream of_thread(const void* parameters) {
  CUstream given = stream(parameters);
  return given == nullptr ? CU_STREAM_PER_THREAD : given;
}

constexpr std::array kSites = {
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, of_parameters<cuLaunchKernel_params>},
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
               of_thread<of_parameters<cuLaunchKernel_ptsz_params>>},
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, of_configuration<cuLaunchKernelEx_params>},
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
               of_thread<of_configuration<cuLaunchKernelEx_ptsz_params>>},
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
               of_parameters<cuLaunchCooperativeKernel_params>},
    LaunchSite{CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
               of_thread<of_parameters<cuLaunchCooperativeKernel_ptsz_params>>},
};

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

std::span<const LaunchSite> launch_sites() {
  return kSites;
}

const LaunchSite* launch_site(CUpti_CallbackId id) {
  for (const LaunchSite& site : kSites)
    if (site.id == id) return &site;
  return nullptr;
}

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
