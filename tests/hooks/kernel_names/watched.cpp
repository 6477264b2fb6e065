// SPDX-License-Identifier: Apache-2.0
#include "tests/hooks/kernel_names/watched.h"

#include <atomic>

namespace spillway::hooks {
namespace {

CUpti_SubscriberHandle handle() {
  static int some = 0;
  return reinterpret_cast<CUpti_SubscriberHandle>(&some);
}

CUptiResult CUPTIAPI subscribe(CUpti_SubscriberHandle* subscriber,
                               CUpti_CallbackFunc callback,
                               void* user,
                               CUpti_SubscriberParams* parameters) {
  SyntheticCupti& cupti = SyntheticCupti::instance();
  ++cupti.asked;
  if (cupti.subscribing != CUPTI_SUCCESS) return cupti.subscribing;
  if (cupti.has_subscriber || !cupti.holder.empty()) {
    cupti.holder.copy(parameters->oldSubscriberName, parameters->oldSubscriberSize);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  cupti.has_subscriber = true;
  ++cupti.subscribed;
  cupti.callback = callback;
  cupti.user = user;
  *subscriber = handle();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI unsubscribe(CUpti_SubscriberHandle subscriber) {
  SyntheticCupti& cupti = SyntheticCupti::instance();
  if (subscriber != handle() || !cupti.has_subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  cupti.has_subscriber = false;
  ++cupti.unsubscribed;
  cupti.enabled.clear();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI enable_callback(std::uint32_t enable,
                                     CUpti_SubscriberHandle subscriber,
                                     CUpti_CallbackDomain domain,
                                     CUpti_CallbackId id) {
  SyntheticCupti& cupti = SyntheticCupti::instance();
  if (subscriber != handle() || enable != 1 || domain != CUPTI_CB_DOMAIN_DRIVER_API ||
      id == cupti.unknown) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  cupti.enabled.insert(id);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI get_result_string(CUptiResult result, const char** text) {
  if (result != CUPTI_ERROR_INVALID_PARAMETER) return CUPTI_ERROR_INVALID_PARAMETER;
  *text = "CUPTI_ERROR_INVALID_PARAMETER";
  return CUPTI_SUCCESS;
}

}  // namespace

CuptiApi SyntheticCupti::api() {
  return {.subscribe = subscribe,
          .unsubscribe = unsubscribe,
          .enable_callback = enable_callback,
          .get_result_string = get_result_string};
}

void SyntheticCupti::make(const Call& call, const std::function<void()>& body) {
  static std::atomic<std::uint32_t> calls{0};
  CUresult result = call.result;
  std::uint64_t correlation = 0;
  CUpti_CallbackData data{};
  data.functionName = "a driver function";
  data.functionParams = call.parameters;
  data.functionReturnValue = &result;
  data.symbolName = call.symbol;
  data.context = call.context;
  data.correlationData = &correlation;
  data.correlationId = ++calls;
  data.callbackSite = CUPTI_API_ENTER;
  if (enabled.count(call.id) != 0) call_back(CUPTI_CB_DOMAIN_DRIVER_API, call.id, &data);
  body();
  data.callbackSite = CUPTI_API_EXIT;
  if (enabled.count(call.id) != 0) call_back(CUPTI_CB_DOMAIN_DRIVER_API, call.id, &data);
}

}  // namespace spillway::hooks
