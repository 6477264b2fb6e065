// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/process.h"

#include "allocator/base/bytes.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

namespace spillway {
namespace {

struct ProcessStat {
  bool ended;
  std::uint64_t started;
};

template <typename Number>
bool read_number(const std::string& word, Number& number) {
  const char* const end = word.data() + word.size();
  return std::from_chars(word.data(), end, number).ptr == end;
}

/// Empty if /proc/PID/stat cannot be read: that alone proves nothing about the process.
std::optional<ProcessStat> stat_of(std::int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in parentheses may contain any characters.
  std::istringstream words(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string word;
  std::string state;
  long threads = 0;
  ProcessStat stat{};
  for (int field = 3; words >> word; ++field) {
    if (field == 3) state = word;
    if (field == 20 && !read_number(word, threads)) return std::nullopt;
    if (field != 22) continue;
    if (!read_number(word, stat.started)) return std::nullopt;
    // A main thread that has ended is a zombie as long as other threads run.
    stat.ended = state == "X" || (state == "Z" && threads <= 1);
    return stat;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> start_of(std::int32_t process) {
  const auto stat = stat_of(process);
  if (!stat || stat->ended) return std::nullopt;
  return stat->started;
}

bool has_ended(std::int32_t process, std::uint64_t started) {
  if (const auto stat = stat_of(process)) {
    return stat->ended || (started != 0 && stat->started != started);
  }
  return kill(process, 0) != 0 && errno == ESRCH;
}

std::string address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; RLIMIT_AS limits this process to " + readable(Bytes{limit.rlim_cur}) +
         " of addresses, see `ulimit -v`";
}

}  // namespace spillway
