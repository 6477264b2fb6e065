// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"
#include "emulator/device/thread_state.h"
#include "emulator/driver/functions.h"

#include <array>
#include <string_view>
#include <type_traits>

namespace spillway::emulator::driver {
namespace {

/// A function of any driver type that reports that it is not emulated.
template <Literal kName, typename Function>
struct Refusal;

template <Literal kName, typename... Arguments>
struct Refusal<kName, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... /*unused*/) {
    counter<kName>.add();
    return refuse(kName.text);
  }
};

/// A function for programs with per-thread default streams: stream 0 is the thread's own.
template <auto kFunction>
struct PerThread;

template <typename... Arguments, CUresult (*kFunction)(Arguments...)>
struct PerThread<kFunction> {
  static constexpr bool kTakesStream = (std::is_same_v<Arguments, CUstream> || ...);

  static CUresult call(Arguments... arguments) {
    const PerThreadDefaultStreamScope here;
    return kFunction(arguments...);
  }
};

/// The per-thread counterpart of a function, for functions that take a stream or wait on stream 0.
template <auto kFunction>
void* counterpart_of(std::string_view name) {
  const bool waits = name.starts_with("cuMemcpy") || name.starts_with("cuMemset");
  if (!waits && !PerThread<kFunction>::kTakesStream) return reinterpret_cast<void*>(kFunction);
  return reinterpret_cast<void*>(&PerThread<kFunction>::call);
}

struct Entry {
  std::string_view name;
  int version;
  void* function;
  void* counterpart;
};

// For a base that occurs twice, the newer version is first.
const auto kEntries = std::to_array<Entry>({
#define SPILLWAY_EMULATED(name, version)                                  \
  {"cu" #name,                                                            \
   version,                                                               \
   reinterpret_cast<void*>(static_cast<PFN_cu##name##_v##version>(name)), \
   counterpart_of<static_cast<PFN_cu##name##_v##version>(name)>("cu" #name)},
#define SPILLWAY_REFUSED(name, version)                                            \
  {"cu" #name,                                                                     \
   version,                                                                        \
   reinterpret_cast<void*>(&Refusal<"cu" #name, PFN_cu##name##_v##version>::call), \
   reinterpret_cast<void*>(&Refusal<"cu" #name, PFN_cu##name##_v##version>::call)},
#include "emulator/driver/functions.inc"
#undef SPILLWAY_EMULATED
#undef SPILLWAY_REFUSED
    {"cuMemcpyBatchAsync",
     12080,
     reinterpret_cast<void*>(&memcpy_batch_12080),
     counterpart_of<&memcpy_batch_12080>("cuMemcpyBatchAsync")},
});

/// Removes a suffix from the name, if it has it.
bool take(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

/// Removes the version suffix of a newer ABI: cuMemAlloc_v2.
void take_version(std::string_view& name) {
  const std::size_t at = name.rfind("_v");
  if (at != std::string_view::npos && at + 3 == name.size()) name = name.substr(0, at);
}

}  // namespace

void* look_up(const char* name, int version, bool per_thread) {
  if (name == nullptr) return nullptr;
  std::string_view wanted = name;
  if (take(wanted, "_ptsz") || take(wanted, "_ptds")) per_thread = true;
  take_version(wanted);
  for (const Entry& entry : kEntries) {
    if (entry.name != wanted || entry.version > version) continue;
    return per_thread ? entry.counterpart : entry.function;
  }
  return nullptr;
}

}  // namespace spillway::emulator::driver
