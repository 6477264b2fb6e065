// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pin_worker.h"

#include <csignal>
#include <system_error>
#include <utility>

namespace spillway {

PinWorker::~PinWorker() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool PinWorker::begin(Bytes size) {
  SPILLWAY_CHECK(under_way_.zero() && !size.zero());
  if (!thread_.joinable()) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error&) {
      // Said below: there is none.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread_.joinable()) return false;
  }
  under_way_ = size;
  {
    const Lock lock(mutex_);
    wanted_ = size;
  }
  changed_.notify_all();
  return true;
}

Result<HostPages> PinWorker::finish() {
  SPILLWAY_CHECK(!under_way_.zero());
  under_way_ = {};
  const Lock lock(mutex_);
  while (!made_)
    changed_.wait(mutex_);
  return *std::exchange(made_, std::nullopt);
}

void PinWorker::work() {
  const Lock lock(mutex_);
  while (true) {
    while (wanted_.zero() && !end_)
      changed_.wait(mutex_);
    if (end_) return;
    const Bytes size = std::exchange(wanted_, Bytes{});
    mutex_.unlock();
    Result<HostPages> made = make_(size);
    mutex_.lock();
    made_ = std::move(made);
    changed_.notify_all();
  }
}

}  // namespace spillway
