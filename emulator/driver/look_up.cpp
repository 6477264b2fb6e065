// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

#include <array>
#include <string_view>

namespace spillway::emulator::driver {
namespace {

/// A function of any driver type that only says that it is not emulated.
template <Literal kName, typename Function>
struct Refusal;

template <Literal kName, typename... Arguments>
struct Refusal<kName, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... /*unused*/) {
    counter<kName>.add();
    return refuse(kName.text);
  }
};

struct Entry {
  std::string_view name;
  int version;
  void* function;
};

const auto kEntries = std::to_array<Entry>({
#define SPILLWAY_EMULATED(name, version) \
  {"cu" #name, version, reinterpret_cast<void*>(static_cast<PFN_cu##name##_v##version>(name))},
#define SPILLWAY_REFUSED(name, version) \
  {"cu" #name,                          \
   version,                             \
   reinterpret_cast<void*>(&Refusal<"cu" #name, PFN_cu##name##_v##version>::call)},
#include "emulator/driver/functions.inc"
#undef SPILLWAY_EMULATED
#undef SPILLWAY_REFUSED
});

/// Without the suffix that a library's symbol has for its newer ABI: cuMemAlloc_v2.
std::string_view without_suffix(std::string_view name) {
  const std::size_t at = name.rfind("_v");
  return at != std::string_view::npos && at + 3 == name.size() ? name.substr(0, at) : name;
}

}  // namespace

void* look_up(const char* name, int version) {
  if (name == nullptr) return nullptr;
  const std::string_view wanted = without_suffix(name);
  for (const Entry& entry : kEntries) {
    if (entry.name == wanted && entry.version <= version) return entry.function;
  }
  return wanted == "cuMemcpyBatchAsync" && version >= 12080 ? memcpy_batch_12080() : nullptr;
}

}  // namespace spillway::emulator::driver
