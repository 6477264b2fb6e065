// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hooks/cupti_api.h"

#include <functional>
#include <set>
#include <string>

namespace spillway::hooks {

/// Stands in for CUPTI: one subscriber, and callbacks around the launches that a test makes, on the
/// test's own threads. One for the process, as CUPTI is.
struct SyntheticCupti {
  static SyntheticCupti& instance();

  /// A table over this one.
  static CuptiApi api();

  /// A call of one of the driver's functions, as the program makes it: `body` is what the driver
  /// does. CUPTI's callbacks come before and after where something has enabled them.
  struct Call {
    CUpti_CallbackId id;
    const void* parameters;
    const char* symbol = nullptr;
    CUcontext context = nullptr;
    CUresult result = CUDA_SUCCESS;
  };

  void make(
      const Call& call, const std::function<void()>& body = [] {});

  /// A callback whatever is enabled.
  void call_back(CUpti_CallbackDomain domain,
                 CUpti_CallbackId id,
                 const CUpti_CallbackData* data) const;

  // What happened.
  int asked = 0;  // to subscribe
  int subscribed = 0;
  int unsubscribed = 0;
  std::set<CUpti_CallbackId> enabled;
  bool has_subscriber = false;

  // What is to happen.
  std::string holder;  // who has CUPTI already
  CUptiResult subscribing = CUPTI_SUCCESS;
  CUpti_CallbackId unknown = 0;  // a function that this CUPTI cannot watch

  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
};

}  // namespace spillway::hooks
