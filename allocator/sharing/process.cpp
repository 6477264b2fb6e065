// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/process.h"

#include "allocator/base/process.h"

#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace spillway {
namespace {

// Missing in the headers of some C libraries that Spillway runs on; the numbers are the same
// everywhere.
constexpr long kPidfdOpen = 434;
constexpr long kPidfdGetfd = 438;

Status ended(std::int32_t process) {
  return SPILLWAY_ERROR(Code::kNotReady,
                        "process " + std::to_string(process) +
                            ", which shared the memory, has ended or is in another PID namespace. "
                            "Keep the sender running, and use one namespace.");
}

}  // namespace

Result<OtherProcess> OtherProcess::open(std::int32_t process, std::uint64_t started) {
  File file(static_cast<int>(syscall(kPidfdOpen, process, 0)));
  if (!file.open() && errno != ESRCH) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          std::string("the memory of another process cannot be opened: "
                                      "pidfd_open failed (") +
                              std::generic_category().message(errno) +
                              "). Use Linux 5.6 or later.");
  }
  if (!file.open()) return ended(process);
  // If the process with this ID started when the sender did, it had the ID when it was opened.
  const auto now = start_of(process);
  if (!now && !has_ended(process, started)) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "the memory of process " + std::to_string(process) +
                              " cannot be opened: /proc/" + std::to_string(process) +
                              "/stat cannot be read. Raise `ulimit -n`, which bounds open files.");
  }
  if (now != started) return ended(process);
  return OtherProcess(process, std::move(file));
}

Result<File> OtherProcess::take(int number) const {
  File taken(static_cast<int>(syscall(kPidfdGetfd, file_.number(), number, 0)));
  if (taken.open()) return taken;
  const int error = errno;
  if (error == ESRCH) return ended(process_);
  const std::string what = "the memory that process " + std::to_string(process_) + " shares ";
  if (error == EBADF) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what + "is no longer shared. Keep the tensor alive in the sender.");
  }
  if (error == EPERM) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what +
                              "may not be opened (pidfd_getfd: EPERM). Let processes of one user "
                              "look at each other with `sysctl kernel.yama.ptrace_scope=0`, or, in "
                              "a container, give it the capability SYS_PTRACE.");
  }
  if (error == EMFILE || error == ENFILE) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what + "takes more open files than are allowed. Raise `ulimit -n`.");
  }
  return SPILLWAY_ERROR(Code::kNotReady,
                        what + "cannot be opened: pidfd_getfd failed (" +
                            std::generic_category().message(error) + "). Use Linux 5.6 or later.");
}

}  // namespace spillway
