// SPDX-License-Identifier: Apache-2.0
#include "interpose/ranges.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"
#include "hooks/nvtx.h"
#include "interpose/next.h"
#include "interpose/own_path.h"

#include <cstdlib>

namespace spillway::interpose {
namespace {

constexpr const char* kInjection = "NVTX_INJECTION64_PATH";

}  // namespace

void offer_ranges() {
  const std::string path = own_path();
  const std::string there = env::foreign(kInjection).value_or("");
  if (path.empty() || there == path) return;
  if (!there.empty()) return log("preload: NVTX ranges go to " + there + " alone");
  setenv(kInjection, path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): see the header
}

std::string forward_ranges_to(void* library) {
  static hooks::RangeListener listener;
  listener.push =
      reinterpret_cast<decltype(listener.push)>(plain_dlsym(library, "spillway_range_pushed"));
  listener.pop =
      reinterpret_cast<decltype(listener.pop)>(plain_dlsym(library, "spillway_range_popped"));
  if (listener.push == nullptr || listener.pop == nullptr)
    return "libspillway_libtorch.so is of another version";
  hooks::set_range_listener(&listener);
  return {};
}

}  // namespace spillway::interpose

/// The symbol that NVTX looks up in the library named by NVTX_INJECTION64_PATH.
// NOLINTNEXTLINE(readability-identifier-naming): NVTX's name
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*tables)(std::uint32_t id)) {
  return spillway::hooks::attach_to_nvtx(tables);
}
