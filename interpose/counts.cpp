// SPDX-License-Identifier: Apache-2.0
#include "interpose/counts.h"

#include "interpose/preload.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace spillway::interpose {
namespace {

struct Count {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> bytes{0};
};

constexpr std::array<std::string_view, static_cast<std::size_t>(Entry::kCount)> kNames = {
#define SPILLWAY_ENTRY(name) #name,
#include "interpose/entry_points.inc"
#undef SPILLWAY_ENTRY
};

std::array<Count, kNames.size()> counts;

}  // namespace

void count(Entry entry, std::size_t bytes) {
  Count& mine = counts[static_cast<std::size_t>(entry)];  // NOLINT: the enum bounds it
  mine.calls.fetch_add(1, std::memory_order_relaxed);
  mine.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace spillway::interpose

extern "C" __attribute__((visibility("default"))) std::uint64_t spillway_preload_count(
    const char* what) {
  using namespace spillway::interpose;
  constexpr std::string_view kBytes = "_bytes";
  if (what == nullptr) return 0;
  std::string_view name(what);
  const bool bytes = name.ends_with(kBytes);
  if (bytes) name.remove_suffix(kBytes.size());
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return bytes ? counts[i].bytes.load() : counts[i].calls.load();
  }
  return 0;
}
