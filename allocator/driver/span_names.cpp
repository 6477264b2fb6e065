// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/span_names.h"

#include "allocator/base/mutex.h"

#include <unordered_map>
#include <vector>

namespace spillway::driver {
namespace {

/// Never destroyed: spans may be named while the process ends.
struct Names {
  Mutex mutex;
  std::unordered_map<std::string, std::uint32_t> numbers SPILLWAY_GUARDED_BY(mutex);
  std::vector<std::string> names SPILLWAY_GUARDED_BY(mutex);
};

Names& names() {
  static auto* const known = new Names;
  return *known;
}

}  // namespace

std::uint32_t number_span_name(std::string_view name) {
  Names& known = names();
  const Lock lock(known.mutex);
  const auto [entry, fresh] = known.numbers.try_emplace(
      std::string(name), static_cast<std::uint32_t>(known.names.size() + 1));
  if (fresh) known.names.emplace_back(name);
  return entry->second;
}

std::string span_name(std::uint32_t number) {
  Names& known = names();
  const Lock lock(known.mutex);
  return number == 0 || number > known.names.size() ? std::string() : known.names[number - 1];
}

}  // namespace spillway::driver
