// SPDX-License-Identifier: Apache-2.0
#include "hooks/launch_sites.h"

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

}  // namespace

std::span<const LaunchSite> launch_sites() {
  return kSites;
}

const LaunchSite* launch_site(CUpti_CallbackId id) {
  for (const LaunchSite& site : kSites)
    if (site.id == id) return &site;
  return nullptr;
}

}  // namespace spillway::hooks
