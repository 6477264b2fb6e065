// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace spillway {

/// A thread that runs `work` with all signals blocked: the program's are for its own threads. Not
/// joinable where the machine has no thread left.
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
    // The caller sees that it cannot be joined.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace spillway
