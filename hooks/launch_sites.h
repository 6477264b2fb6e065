// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cupti_callbacks.h>

#include <span>

namespace spillway::hooks {

/// A driver function that launches one kernel on one stream. Graph launches are excluded.
struct LaunchSite {
  CUpti_CallbackId id;
  CUstream (*stream)(const void* parameters);  // as the driver receives it: never null with _ptsz
};

/// All watched functions.
std::span<const LaunchSite> launch_sites();

/// Null for any other function.
const LaunchSite* launch_site(CUpti_CallbackId id);

}  // namespace spillway::hooks
