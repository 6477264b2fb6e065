// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace spillway {

/// A thread that runs `work` with all signals blocked, because signals are for the program's own
/// threads. Not joinable if the machine has no thread left.
template <typename Work>
std::thread start_thread(Work&& work) {
  std::thread thread;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread = std::thread(std::forward<Work>(work));
  } catch (const std::system_error&) {
    // The caller detects that it is not joinable.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace spillway
