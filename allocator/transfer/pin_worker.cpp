// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pin_worker.h"

#include "allocator/base/thread.h"

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
  if (!thread_.joinable()) thread_ = start_thread([this] { work(); });
  if (!thread_.joinable()) return false;
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
