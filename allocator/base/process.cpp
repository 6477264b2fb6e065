// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/process.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace spillway {

std::optional<std::uint64_t> start_of(std::int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in brackets may have anything in it.
  std::istringstream words(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string word;
  for (int field = 3; words >> word; ++field) {
    if (field == 3 && (word == "Z" || word == "X")) return std::nullopt;
    if (field == 22) return std::strtoull(word.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

}  // namespace spillway
