// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pinned_pieces.h"

#include "allocator/base/thread.h"
#include "allocator/driver/api.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace spillway {
namespace {

using namespace literals;

/// From this size on, rounding to huge pages costs less than a hundredth.
constexpr Bytes kLarge = 256_MiB;

/// The granularity of a piece's size.
Bytes page_of(Bytes size) {
  static const Bytes page{static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))};
  return size < kLarge ? page : kHugePage;
}

/// Maps and registers; from any thread. Errors: kOutOfHostMemory, kDriver.
Result<HostPages> make(const driver::Device& device, int node, Bytes size) {
  SPILLWAY_ASSIGN_OR_RETURN(const HostPages pages, map_host_pages(size, node));
  const driver::CurrentDevice current(*device.api, device.context);
  const driver::OutsideCaptures outside(*device.api);
  Status status = SPILLWAY_CALL(
      *device.api, MemHostRegister, pages.at, size.count(), CU_MEMHOSTREGISTER_PORTABLE);
  if (!status.ok()) {
    unmap_host_pages(pages);
    return status;
  }
  driver::count_registration();
  return pages;
}

/// A possible cause of a driver's refusal: the process's limit of locked memory, if it has one.
std::string locked_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; RLIMIT_MEMLOCK (ulimit -l) lets this process lock " + readable(Bytes{limit.rlim_cur});
}

}  // namespace

std::string_view pin_refusal_name(PinRefusal refusal) {
  constexpr auto kNames = std::to_array<std::string_view>({"limit", "node", "machine", "driver"});
  return kNames.at(static_cast<std::size_t>(refusal));
}

PinnedPieces::PinnedPieces(const driver::Device& device, PinnedOptions options)
    : device_(device),
      options_(std::move(options)),
      node_(host_node_of(device)),
      ledger_(options_.ledger),
      worker_([device = device_, node = node_](Bytes size) { return make(device, node, size); }) {}

PinnedPieces::~PinnedPieces() {
  if (!begun().zero()) static_cast<void>(finish());
  while (!pieces_.empty())
    remove(pieces_.begin()->first);
}

Bytes PinnedPieces::whole_pages(Bytes size) {
  if (size > kNoMachineHasThis) return size;
  return size.rounded_up(page_of(size));
}

Bytes PinnedPieces::whole_pages_in(Bytes limit) {
  return Bytes{limit.count() - limit.count() % page_of(limit).count()};
}

Result<std::byte*> PinnedPieces::add(Bytes size) {
  size = whole_pages(size);
  SPILLWAY_RETURN_IF_ERROR(charge(size));
  return keep(size, make(device_, node_, size));
}

void PinnedPieces::begin(Bytes size) {
  size = whole_pages(size);
  if (!charge(size).ok()) return;
  if (!worker_.begin(size)) release(size);
}

Result<std::byte*> PinnedPieces::finish() {
  const Bytes size = begun();
  return keep(size, worker_.finish());
}

Result<std::byte*> PinnedPieces::keep(Bytes size, const Result<HostPages>& made) {
  if (!made.ok()) {
    release(size);
    const bool driver = made.status().code() != Code::kOutOfHostMemory;
    return driver ? refuse(PinRefusal::kDriver, size, made.status().message() + locked_memory())
                  : refuse(PinRefusal::kMachine, size, made.status().message());
  }
  ++registrations_;
  pieces_.emplace(made.value().at, made.value());
  return made.value().at;
}

void PinnedPieces::remove(std::byte* piece) {
  const auto at = pieces_.find(piece);
  SPILLWAY_CHECK(at != pieces_.end());
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  // Addresses that the driver still associates with these pages must not be reused.
  if (device_.api->MemHostUnregister(piece) == CUDA_SUCCESS) unmap_host_pages(at->second);
  release(at->second.size);
  pieces_.erase(at);
}

Status PinnedPieces::refuse(PinRefusal why, Bytes size, const std::string& text) {
  ++refusals_.at(static_cast<std::size_t>(why));
  return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                        readable(size) + " of host memory cannot be pinned: " + text);
}

Status PinnedPieces::charge(Bytes size) {
  if (size.zero() || size > kNoMachineHasThis) {
    return refuse(PinRefusal::kMachine, size, "no machine has that much. Offload less.");
  }
  if (!options_.limit.zero() && registered_ + size > options_.limit) {
    return refuse(PinRefusal::kLimit,
                  size,
                  readable(registered_) +
                      " are pinned by this process already, and SPILLWAY_PINNED_LIMIT is " +
                      readable(options_.limit) + ". Raise or unset it.");
  }
  if (const HostRoom room = host_room(options_.root);
      size > room.left && !driver::moves_no_bytes()) {
    return refuse(PinRefusal::kMachine,
                  size,
                  "the machine and the control groups of this process leave room for " +
                      readable(room.left) + ". Offload less, or free host memory.");
  }
  if (!options_.node_limit.zero()) {
    if (const Status status = ledger_.charge(size, options_.node_limit); !status.ok()) {
      return refuse(PinRefusal::kNode, size, status.detail());
    }
  }
  registered_ += size;
  registered_peak_ = std::max(registered_peak_, registered_);
  return {};
}

void PinnedPieces::release(Bytes size) {
  if (!options_.node_limit.zero()) ledger_.release(size);
  registered_ -= size;
}

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
