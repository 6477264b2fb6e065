// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace emulated {

struct Setting {
  const char* name;
  const char* value;
};

/// What a process of its own with these settings writes, and how it ends where that is no success.
/// For settings, which are read once, and for errors that stay. Requires: the program itself never
/// touches the emulator, because a forked child of one that did has none.
template <typename Body>
std::string in_process(const std::vector<Setting>& settings, Body body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    for (const Setting& each : settings)
      setenv(each.name, each.value, 1);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string written;
  char part[4096];
  ssize_t got = 0;
  while ((got = read(ends[0], part, sizeof part)) > 0) {
    written.append(part, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) written += "signal " + std::to_string(WTERMSIG(status)) + "\n";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    written += "status " + std::to_string(WEXITSTATUS(status)) + "\n";
  }
  return written;
}

/// One line of what a process writes.
inline void say(const char* what, long value) {
  dprintf(STDOUT_FILENO, "%s %ld\n", what, value);
}

}  // namespace emulated
