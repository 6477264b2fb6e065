// SPDX-License-Identifier: Apache-2.0
#include "interpose/proc_address.h"

#include "interpose/exports.h"
#include "interpose/next.h"
#include "interpose/wrapper.h"

#include <cuda.h>

#include <algorithm>
#include <string_view>

namespace spillway::interpose {
namespace {

constinit std::atomic<std::uint64_t> newer{0};

constexpr auto kByName = [] {
  std::array<Entry, kEntries> sorted{};
  for (std::size_t i = 0; i < kEntries; ++i)
    sorted[i] = static_cast<Entry>(i);
  std::sort(sorted.begin(), sorted.end(), [](Entry a, Entry b) {
    return function_of(a).symbol < function_of(b).symbol;
  });
  return sorted;
}();

/// Whether calls by name reach another function than `found`, of another interposer or another
/// libcudart. The driver may have several addresses for one function.
bool leads_elsewhere(Entry entry, const void* found) {
  const void* by_name = next_definition(entry);
  if (by_name == nullptr || by_name == found) return false;
  const Library library = function_of(entry).library;
  return library == Library::kRuntime || !defines(by_name, library);
}

}  // namespace

std::optional<Entry> entry_named(const char* symbol) {
  const std::string_view name(symbol);
  const auto* at = std::lower_bound(
      kByName.begin(), kByName.end(), name, [](Entry entry, std::string_view wanted) {
        return function_of(entry).symbol < wanted;
      });
  if (at == kByName.end() || function_of(*at).symbol != name) return std::nullopt;
  return *at;
}

std::optional<Entry> entry_for(const char* base, int version, std::uint64_t flags) {
  if (base == nullptr) return std::nullopt;
  const std::string_view name(base);
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  std::optional<Entry> best;
  for (std::size_t i = 0; i < kEntries; ++i) {
    const Function& is = kFunctions[i];  // NOLINT(*-constant-array-index)
    if (is.library != Library::kDriver || is.base != name || is.version > version) continue;
    if (is.has_counterpart && is.per_thread != per_thread) continue;
    if (!best || function_of(*best).version < is.version) best = static_cast<Entry>(i);
  }
  if (best && version > CUDA_VERSION) {
    newer.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  return best;
}

void* wrapped(Entry entry, void* found) {
  void* none = nullptr;
  std::atomic<void*>& next = next_of(entry);
  if (next.load() == nullptr && leads_elsewhere(entry, found)) return nullptr;
  if (!next.compare_exchange_strong(none, found) && none != found) return nullptr;
  return exported(entry);
}

void wrap_found(const char* base, void** found, int version, std::uint64_t flags) {
  if (found == nullptr || *found == nullptr) return;
  const auto entry = entry_for(base, version, flags);
  if (!entry || object_of(*found) == Object::kSelf || !defines(*found, Library::kDriver)) return;
  if (void* ours = wrapped(*entry, *found); ours != nullptr) *found = ours;
}

void wrap_found(
    const char* base, void** found, int version, std::uint64_t flags, const void* status) {
  constexpr int kFound = 0;
  if (status != nullptr && *static_cast<const int*>(status) != kFound) return;
  wrap_found(base, found, version, flags);
}

void wrap_found(
    const char* base, void** found, unsigned version, std::uint64_t flags, const void* status) {
  wrap_found(base, found, static_cast<int>(version), flags, status);
}

std::uint64_t newer_look_ups() {
  return newer.load(std::memory_order_relaxed);
}

}  // namespace spillway::interpose
