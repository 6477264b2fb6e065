// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/file_traffic.h"

#include "allocator/base/thread.h"
#include "torch_glue/base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway {
namespace {

using driver::Fence;
using driver::Timeline;
using namespace literals;

constexpr Bytes kBounce = 4_MiB;  // enough for a copy engine at full bandwidth
constexpr Bytes kMaxToKeep = 32_MiB;

}  // namespace

FileTraffic::FileTraffic(DeviceRuntime& device, std::shared_ptr<HostFile> file, Bytes largest)
    : device_(device),
      file_(std::move(file)),
      consumers_(device.device()),
      most_to_keep_(std::min(kMaxToKeep, largest + largest)) {
  const Bytes each = std::max(1_B, std::min(kBounce, largest));
  for (HostSlot& bounce : bounces_)
    bounce = checked(device_.arena().take(each));
  thread_ = start_thread([this] { work(); });
  TORCH_CHECK(thread_.joinable(),
              "Spillway: offload_device: the thread that reads the file cannot start. Raise the "
              "limit of threads (ulimit -u, or pids.max of the control group).");
}

FileTraffic::~FileTraffic() {
  {
    const Lock lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

FileTraffic::Outcome FileTraffic::order(Order task) {
  Outcome outcome = task.get_future().share();
  {
    const Lock lock(mutex_);
    orders_.push_back(std::move(task));
  }
  changed_.notify_all();
  return outcome;
}

void FileTraffic::work() {
  while (true) {
    Order next;
    {
      const Lock lock(mutex_);
      while (orders_.empty() && !end_)
        changed_.wait(mutex_);
      if (orders_.empty()) return;
      next = std::move(orders_.front());
      orders_.pop_front();
    }
    next();
  }
}

FileTraffic::Outcome FileTraffic::load(std::vector<Piece> pieces,
                                       driver::Stream consumer,
                                       CopyPriority priority) {
  const Fence ready = checked(consumers_.of(consumer).mark());
  for (const Piece& piece : pieces)
    file_->expect(piece.home, piece.size);
  return order(Order([this, pieces = std::move(pieces), ready, priority] {
    return bring(pieces, ready, priority);
  }));
}

Result<Fence> FileTraffic::bring(const std::vector<Piece>& pieces,
                                 Fence ready,
                                 CopyPriority priority) {
  Fence last;
  // The destinations were ready at the request. Later work of the consumer does not matter, so the
  // copies are ordered after their own stream.
  const driver::Stream itself = device_.copies().in_stream(priority);
  const auto copy = [&](const Piece& piece, Bytes done, Bytes size) -> Status {
    HostSlot& bounce = bounces_.at(turn_++ % bounces_.size());
    // The host writes to it: earlier uses must be complete.
    SPILLWAY_RETURN_IF_ERROR(bounce.fences.wait_sync());
    bounce.fences.clear();
    SPILLWAY_RETURN_IF_ERROR(file_->read(piece.home + done.count(), bounce.data(), size));
    SPILLWAY_ASSIGN_OR_RETURN(
        last,
        device_.copies().to_device(
            {{bounce.data(), size}, ready, piece.destination + done}, itself, priority));
    bounce.fences.add(last);
    return {};
  };
  for (const Piece& piece : pieces) {
    for (Bytes done; done < piece.size;) {
      const Bytes size = std::min(piece.size - done, bounces_.front().size());
      const Status status = copy(piece, done, size);
      if (!status.ok()) {
        if (!Timeline::wait_sync(last).ok()) device_.copies().drain_sync();
        return status;
      }
      done += size;
    }
  }
  return last;
}

HostSlot FileTraffic::slot_for(Bytes size) {
  {
    const Lock lock(mutex_);
    while (!on_the_way_.zero() && on_the_way_ + size > most_to_keep_)
      changed_.wait(mutex_);
    on_the_way_ += size;
  }
  Result<HostSlot> slot = device_.arena().take(size);
  if (!slot.ok()) count_arrived(size);
  return checked(std::move(slot));
}

void FileTraffic::give(HostSlot slot) {
  const Bytes size = slot.size();
  slot = {};
  count_arrived(size);
}

void FileTraffic::count_arrived(Bytes size) {
  {
    const Lock lock(mutex_);
    on_the_way_ -= size;
  }
  changed_.notify_all();
}

FileTraffic::Outcome FileTraffic::keep(driver::DevicePtr source,
                                       driver::Stream producer,
                                       std::shared_ptr<HostMemory> home,
                                       Bytes offset,
                                       Bytes size,
                                       Fence& copied) {
  HostSlot slot = slot_for(size);
  Result<Fence> begun = device_.copies().to_host({source, slot}, producer);
  if (!begun.ok()) give(std::move(slot));
  copied = checked(std::move(begun));
  return order(
      Order([this, slot = std::move(slot), copied, home = std::move(home), offset]() mutable {
        const Status status = put(slot, copied, *home, offset);
        give(std::move(slot));
        if (status.ok()) return Result<Fence>(Fence{});
        const Lock lock(mutex_);
        if (failed_.ok()) failed_ = status;
        return Result<Fence>(status);
      }));
}

Status FileTraffic::put(HostSlot& slot, Fence copied, HostMemory& home, Bytes offset) {
  const Status passed = Timeline::wait_sync(copied);
  if (!passed.ok()) device_.copies().drain_sync();
  slot.fences.clear();
  SPILLWAY_RETURN_IF_ERROR(passed);
  std::byte* const at = home.data() + offset.count();
  if (file_->has(at)) return file_->write(slot.data(), at, slot.size());
  std::memcpy(at, slot.data(), slot.size().count());
  return {};
}

void FileTraffic::wait() {
  // Its outcome implies that of all earlier requests.
  static_cast<void>(order(Order([] { return Result<Fence>(Fence{}); })).get());
  Status failed;
  {
    const Lock lock(mutex_);
    std::swap(failed, failed_);
  }
  check(failed);
}

}  // namespace spillway
