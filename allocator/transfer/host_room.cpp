// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_room.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kMaxReserve = 1_GiB;
constexpr std::uint64_t kReserve = 16;  // as a divisor of a limit

/// Version 1 uses a number of this size for "no limit".
constexpr Bytes kNoLimit{1ULL << 60U};

std::optional<Bytes> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max" too
  return Bytes{number};
}

/// The number after `key` in a file of keys and numbers.
std::optional<Bytes> entry_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t number = 0;
    if (words >> name >> number && name == key) return Bytes{number};
  }
  return std::nullopt;
}

void limited_by(HostRoom& room, Bytes limit, Bytes used) {
  room.most = std::min(room.most, limit);
  const Bytes reserve = std::min(kMaxReserve, Bytes{limit.count() / kReserve});
  room.left = std::min(room.left, saturating_sub(limit, used + reserve));
}

/// The file names of the two versions.
struct Names {
  const char* limits[2];
  const char* used;
  const char* droppable;
};

constexpr Names kFirst{
    {"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kSecond{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

void limited_by_group(HostRoom& room, const std::string& folder, const Names& names) {
  const auto used = number_in(folder + '/' + names.used);
  if (!used) return;
  const Bytes droppable = entry_of(folder + "/memory.stat", names.droppable).value_or(Bytes{});
  for (const char* const name : names.limits) {
    const auto limit = name == nullptr ? std::nullopt : number_in(folder + '/' + name);
    if (limit && *limit < kNoLimit) limited_by(room, *limit, saturating_sub(*used, droppable));
  }
}

/// The group `path` below `mount` and all its ancestors. If the process sees its groups from within
/// one, the path may not exist: the limits of `mount` itself apply then.
void limited_by_groups(HostRoom& room,
                       const std::string& mount,
                       std::string path,
                       const Names& names) {
  if (path.find("..") != std::string::npos) path.clear();
  while (true) {
    while (!path.empty() && path.back() == '/')
      path.pop_back();
    limited_by_group(room, mount + path, names);
    if (path.empty()) return;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool has_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

HostRoom host_room(const std::string& root) {
  const std::string memory = root + "/proc/meminfo";
  const auto total = entry_of(memory, "MemTotal:");
  const auto available = entry_of(memory, "MemAvailable:");
  HostRoom room{kNoLimit, kNoLimit, kNoLimit};
  if (total && available) {
    const Bytes all{total->count() << 10U};
    room.machine = all;
    limited_by(room, all, saturating_sub(all, Bytes{available->count() << 10U}));
  }
  const std::string groups = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // number:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limited_by_groups(room, groups, path, kSecond);
      limited_by_groups(room, groups + "/unified", path, kSecond);
    } else if (has_memory(controllers)) {
      limited_by_groups(room, groups + "/memory", path, kFirst);
    }
  }
  return room;
}

}  // namespace spillway
