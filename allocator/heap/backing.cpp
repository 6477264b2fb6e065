// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/backing.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace spillway {

using namespace literals;

Backing::~Backing() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  for (const auto& [at, size] : views_)
    device_.api->MemUnmap(at.address(), size.count());
  for (const auto& [at, chunk] : chunks_) {
    device_.api->MemUnmap(at.address(), chunk.size.count());
    device_.api->MemRelease(chunk.handle);
  }
}

std::map<driver::DevicePtr, Chunk>::const_iterator Backing::around(driver::DevicePtr at) const {
  const auto next = chunks_.upper_bound(at);
  if (next == chunks_.begin()) return chunks_.end();
  const auto chunk = std::prev(next);
  return at < chunk->first + chunk->second.size ? chunk : chunks_.end();
}

driver::DevicePtr Backing::border(driver::DevicePtr at, driver::DevicePtr most) const {
  driver::DevicePtr end = most;
  if (const auto chunk = around(at); chunk != chunks_.end()) {
    return std::min(end, chunk->first + chunk->second.size);
  }
  for (const Range& stuck : stuck_) {
    if (stuck.contains(at)) return std::min(end, stuck.end());
    if (at < stuck.begin) end = std::min(end, stuck.begin);
  }
  const auto next = chunks_.lower_bound(at);
  return next == chunks_.end() ? end : std::min(end, next->first);
}

bool Backing::is_stuck(driver::DevicePtr at) const {
  return std::any_of(
      stuck_.begin(), stuck_.end(), [at](const Range& stuck) { return stuck.contains(at); });
}

/// Under a target, memory moves: each chunk costs calls to the driver, but a single block strands
/// the rest of its chunk.
Bytes Backing::most_of_a_chunk() const {
  const Bytes target = accounting_.target();
  if (target.zero()) return most_;
  const Bytes small = std::min(Bytes{target.count() / 1024}, 8_MiB);
  const Bytes large = std::min(Bytes{target.count() / 2048}, 16_MiB);
  // Most sizes are multiples of a power of two, and chunks of one size are exchanged without waste.
  return std::max(Bytes{std::bit_floor(std::max(small, large).count())}, granularity_);
}

Bytes Backing::surplus(Bytes size) const {
  if (accounting_.target().zero()) return {};
  const Bytes most = most_of_a_chunk();
  const Bytes whole = size.rounded_up(most);
  const Bytes room = std::min(accounting_.room(), accounting_.room_to_target());
  if (spares_.bytes() + whole <= room) return whole - size;
  return spares_.surplus(size, most, user_);
}

Status Backing::map(Range where,
                    const std::vector<driver::DevicePtr>* cuts,
                    driver::FenceSet* uses) {
  const SpareChunks::Scope scope(spares_);
  if (where.size > accounting_.room()) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "the memory limit is reached");
  }
  const driver::Api& api = *device_.api;
  const driver::CurrentDevice current(api, device_.context);
  const driver::OutsideCaptures outside(api);

  SPILLWAY_RETURN_IF_ERROR(spares_.formers().clear(where));
  Made made;
  Status status = make_chunks(where, cuts, made);
  if (status.ok()) {
    const CUdeviceptr at = where.begin.address();
    status =
        SPILLWAY_CALL(api, MemSetAccess, at, where.size.count(), access_.data(), access_.size());
  }
  if (status.ok() && uses == nullptr) status = use_after(made.uses);
  if (!status.ok()) {
    undo(made.chunks);
    return status;
  }

  // No call below may fail.
  if (uses != nullptr) *uses = std::move(made.uses);
  for (auto& [at, chunk] : made.chunks)
    chunk.uses.clear();
  accounting_.mapped(where.size);
  chunks_.merge(made.chunks);
  return {};
}

Status Backing::make_chunks(Range where, const std::vector<driver::DevicePtr>* cuts, Made& made) {
  const Bytes most = most_of_a_chunk();
  for (driver::DevicePtr at = where.begin; at < where.end();) {
    driver::DevicePtr end = where.end();
    if (cuts == nullptr) {
      end = std::min(end, at + most);
    } else if (const auto cut = std::upper_bound(cuts->begin(), cuts->end(), at);
               cut != cuts->end()) {
      end = std::min(end, *cut);
    }
    SPILLWAY_ASSIGN_OR_RETURN(const Chunk chunk, map_chunk(at, distance(at, end), made));
    made.chunks.emplace(at, chunk);
    made.uses.add(SpareChunks::uses_by_others(chunk, user_));
    made.size += chunk.size;
    at = at + chunk.size;
  }
  return {};
}

/// Maps a chunk of at most that size there.
Result<Chunk> Backing::map_chunk(driver::DevicePtr at, Bytes size, const Made& made) {
  Chunk chunk{size, 0};
  Status status;
  if (const std::optional<Chunk> spare = spares_.take(size, made.size + size, user_)) {
    chunk = *spare;
  } else {
    spares_.make_room(made.size + size);
    SPILLWAY_RETURN_IF_ERROR(create(chunk));
  }
  if (status.ok()) {
    status =
        SPILLWAY_CALL(*device_.api, MemMap, at.address(), chunk.size.count(), 0, chunk.handle, 0);
  }
  if (status.ok()) return chunk;
  spares_.add(chunk);
  return status;
}

/// Releases spare chunks if the device has no memory otherwise.
Status Backing::create(Chunk& chunk) {
  Status status;
  do {
    status = SPILLWAY_CALL(*device_.api, MemCreate, &chunk.handle, chunk.size.count(), &memory_, 0);
  } while (status.code() == Code::kOutOfDeviceMemory && spares_.release_one());
  if (!status.ok()) return status;
  driver::count_allocation();
  accounting_.created();
  return status;
}

Status Backing::use_after(const driver::FenceSet& uses) const {
  if (user_ && uses.wait(*user_).ok()) return {};
  return uses.wait_sync();
}

/// Unmaps the chunks of a call of map() that fails.
void Backing::undo(const Chunks& made) {
  for (const auto& [at, chunk] : made) {
    if (device_.api->MemUnmap(at.address(), chunk.size.count()) == CUDA_SUCCESS) {
      spares_.add(chunk);
      continue;
    }
    stuck_.push_back({at, chunk.size});
    accounting_.keep_reserved(chunk.size);
    device_.api->MemRelease(chunk.handle);  // mapped memory stays until it is unmapped
  }
}

Status Backing::view(driver::DevicePtr at, std::span<const Range> parts) {
  const driver::Api& api = *device_.api;
  const driver::CurrentDevice current(api, device_.context);
  const driver::OutsideCaptures outside(api);
  Status status;
  Range where{at, {}};
  for (const Range& part : parts) {
    const driver::DevicePtr end = where.end() + part.size;
    for (auto each = chunks_.find(part.begin);
         status.ok() && each != chunks_.end() && each->first < part.end();
         ++each) {
      const Chunk& chunk = each->second;
      status =
          SPILLWAY_CALL(api, MemMap, where.end().address(), chunk.size.count(), 0, chunk.handle, 0);
      if (status.ok()) where.size += chunk.size;
    }
    SPILLWAY_CHECK(!status.ok() || where.end() == end);
  }
  if (status.ok()) {
    status = SPILLWAY_CALL(
        api, MemSetAccess, at.address(), where.size.count(), access_.data(), access_.size());
  }
  if (status.ok()) {
    views_.emplace(at, where.size);
  } else if (!where.size.zero() && api.MemUnmap(at.address(), where.size.count()) != CUDA_SUCCESS) {
    stuck_.push_back(where);
  }
  return status;
}

bool Backing::end_view(driver::DevicePtr at) {
  const auto view = views_.find(at);
  SPILLWAY_CHECK(view != views_.end());
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  if (device_.api->MemUnmap(at.address(), view->second.count()) != CUDA_SUCCESS) return false;
  views_.erase(view);
  return true;
}

bool Backing::unmap(Range where) {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  auto chunk = chunks_.find(where.begin);
  SPILLWAY_CHECK(chunk != chunks_.end());
  if (device_.api->MemUnmap(where.begin.address(), where.size.count()) != CUDA_SUCCESS)
    return false;
  while (chunk != chunks_.end() && chunk->first < where.end()) {
    accounting_.unmapped(chunk->second.size, 0);
    spares_.add(chunk->second);
    chunk = chunks_.erase(chunk);
  }
  return true;
}

void Backing::leave(Range where, const driver::FenceSet& uses) {
  auto chunk = chunks_.find(where.begin);
  SPILLWAY_CHECK(chunk != chunks_.end());
  while (chunk != chunks_.end() && chunk->first < where.end()) {
    const driver::DevicePtr at = chunk->first;
    Chunk leaves = chunk->second;
    leaves.uses = uses;
    spares_.formers().add(at, {leaves.size, leaves.handle, uses});
    SPILLWAY_CHECK(spares_.keeps(leaves));
    accounting_.unmapped(leaves.size, 0);
    spares_.add(leaves);
    chunk = chunks_.erase(chunk);
  }
}

Result<SharedMemory> Backing::share(Range where) {
  if ((memory_.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "this device's memory cannot be shared between processes. Share a copy in host memory.");
  }
  const driver::CurrentDevice current(*device_.api, device_.context);
  const auto first = around(where.begin);
  if (first == chunks_.end()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "this memory is in pages that replayed allocations of a training step "
                          "reuse, and cannot be shared between processes. Share a copy of it.");
  }
  SharedMemory shared{first->first, {}};
  for (auto chunk = chunks_.find(first->first);
       chunk != chunks_.end() && chunk->first < where.end();
       ++chunk) {
    int file = -1;
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device_.api,
                                           MemExportToShareableHandle,
                                           &file,
                                           chunk->second.handle,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           0));
    chunk->second.exported = true;
    shared.pieces.push_back({File(file), chunk->second.size});
    fcntl(file, F_SETFD, FD_CLOEXEC);  // not inherited by programs that this process starts
  }
  return shared;
}

Status Backing::allow(const Access& access) const {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  const auto allow_in = [&](Range run) {
    return SPILLWAY_CALL(*device_.api,
                         MemSetAccess,
                         run.begin.address(),
                         run.size.count(),
                         access.data(),
                         access.size());
  };
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    Range run{chunk->first, {}};
    for (; chunk != chunks_.end() && chunk->first == run.end(); ++chunk)
      run.size += chunk->second.size;
    SPILLWAY_RETURN_IF_ERROR(allow_in(run));
  }
  for (const auto& [at, size] : views_)
    SPILLWAY_RETURN_IF_ERROR(allow_in({at, size}));
  return {};
}

}  // namespace spillway
