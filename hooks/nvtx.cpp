// SPDX-License-Identifier: Apache-2.0
// Uses NVTX's types; excludes its functions, which would make this library another copy of NVTX.
#define NVTX_NO_IMPL
#include "hooks/nvtx.h"

#include <atomic>
#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace spillway::hooks {
namespace {

std::atomic<const RangeListener*> listener{nullptr};

/// Nesting depth of this thread in a domain.
int& depth(const void* domain) {
  thread_local std::map<const void*, int> depths;
  return depths[domain];
}

int push(const void* domain, const char* name) {
  const RangeListener* const current = listener.load(std::memory_order_acquire);
  if (current != nullptr) current->push(domain, name == nullptr ? "" : name);
  return depth(domain)++;
}

int pop(const void* domain) {
  int& here = depth(domain);
  if (here == 0) return -2;  // NVTX's value for no range
  const RangeListener* const current = listener.load(std::memory_order_acquire);
  if (current != nullptr) current->pop(domain);
  return --here;
}

/// Permanent text whose address is the handle of a domain or of a string.
template <typename Handle>
Handle keep(const char* text, std::string_view kind) {
  static std::mutex mutex;
  static auto* const kept = new std::map<std::string, std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  const std::string name = text == nullptr ? "" : text;
  std::string& found = kept->try_emplace(std::string(kind) + name, name).first->second;
  return reinterpret_cast<Handle>(found.data());
}

const char* name_of(const nvtxEventAttributes_t* range) {
  if (range == nullptr) return "";
  if (range->messageType == NVTX_MESSAGE_TYPE_ASCII) return range->message.ascii;
  if (range->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    return reinterpret_cast<const char*>(range->message.registered);
  }
  return "";
}

int push_plain(const char* name) {
  return push(nullptr, name);
}

int push_wide(const wchar_t*) {
  return push(nullptr, "");
}

int push_described(const nvtxEventAttributes_t* range) {
  return push(nullptr, name_of(range));
}

int pop_plain() {
  return pop(nullptr);
}

int push_in_domain(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  return push(domain, name_of(range));
}

int pop_in_domain(nvtxDomainHandle_t domain) {
  return pop(domain);
}

nvtxDomainHandle_t make_domain(const char* name) {
  return keep<nvtxDomainHandle_t>(name, "domain ");
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  return keep<nvtxStringHandle_t>(text, "string ");
}

struct Entry {
  unsigned id;
  NvtxFunctionPointer function;
};

template <typename Function>
Entry entry(unsigned id, Function* function) {
  return {id, reinterpret_cast<NvtxFunctionPointer>(function)};
}

bool attach(const NvtxExportTableCallbacks& callbacks,
            NvtxCallbackModule module,
            std::initializer_list<Entry> entries) {
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks.GetModuleFunctionTable(module, &table, &size) == 0 || table == nullptr)
    return false;
  for (const Entry& each : entries)
    if (each.id < size && table[each.id] != nullptr) *table[each.id] = each.function;
  return true;
}

}  // namespace

void set_range_listener(const RangeListener* replacement) {
  listener.store(replacement, std::memory_order_release);
}

int attach_to_nvtx(const void* (*tables)(std::uint32_t id)) {
  const auto* const callbacks =
      tables == nullptr ? nullptr
                        : static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) return 0;
  const bool attached = attach(*callbacks,
                               NVTX_CB_MODULE_CORE,
                               {entry(NVTX_CBID_CORE_RangePushA, push_plain),
                                entry(NVTX_CBID_CORE_RangePushEx, push_described),
                                entry(NVTX_CBID_CORE_RangePushW, push_wide),
                                entry(NVTX_CBID_CORE_RangePop, pop_plain)});
  // Domains came with NVTX 2.
  attach(*callbacks,
         NVTX_CB_MODULE_CORE2,
         {entry(NVTX_CBID_CORE2_DomainRangePushEx, push_in_domain),
          entry(NVTX_CBID_CORE2_DomainRangePop, pop_in_domain),
          entry(NVTX_CBID_CORE2_DomainCreateA, make_domain),
          entry(NVTX_CBID_CORE2_DomainRegisterStringA, register_string)});
  return attached ? 1 : 0;
}

}  // namespace spillway::hooks
