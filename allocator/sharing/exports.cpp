// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/exports.h"

#include "allocator/base/process.h"
#include "allocator/heap/range.h"
#include "allocator/sharing/memory_handle.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace spillway {
namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Status no_file() {
  return SPILLWAY_ERROR(Code::kNotReady,
                        "memory cannot be shared: memfd_create failed (" +
                            std::generic_category().message(errno) +
                            "). Raise `ulimit -n`, which bounds open files.");
}

}  // namespace

Result<SharedBlock> Exports::share(driver::DevicePtr at) {
  const HeapBlockInfo block = heap_.find(at);
  const Lock lock(mutex_);
  auto known = shared_.find(block.at);
  if (known == shared_.end()) {
    SPILLWAY_ASSIGN_OR_RETURN(Export made, make(at));
    known = shared_.emplace(block.at, std::move(made)).first;
    any_.store(true, std::memory_order_relaxed);
  }
  const Export& shared = known->second;
  return SharedBlock{shared.handle, distance(shared.memory.begin, at)};
}

Result<Exports::Export> Exports::make(driver::DevicePtr at) {
  File proof(memfd_create("spillway-shared", MFD_CLOEXEC));
  if (!proof.open()) return no_file();
  const std::optional<std::uint64_t> started = start_of(getpid());
  if (!started) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "memory cannot be shared: /proc/self/stat cannot be read. "
                          "Raise `ulimit -n`, which bounds open files.");
  }
  SPILLWAY_ASSIGN_OR_RETURN(SharedMemory memory, heap_.share(at));
  if (memory.pieces.size() > MemoryHandle::kMaxPieces) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "a block of " + std::to_string(memory.pieces.size()) +
                              " pieces of device memory cannot be shared: at most " +
                              std::to_string(MemoryHandle::kMaxPieces) +
                              " fit into a handle. Copy it first.");
  }
  MemoryHandle handle{getpid(), proof.number(), *started, next_serial(), {}};
  for (const SharedMemory::Piece& piece : memory.pieces)
    handle.pieces.push_back({piece.file.number(), piece.size});
  std::string bytes = handle.bytes();
  const auto written = pwrite(proof.number(), bytes.data(), bytes.size(), 0);
  if (written != static_cast<ssize_t>(bytes.size())) return no_file();
  return Export{std::move(memory), std::move(proof), std::move(bytes)};
}

void Exports::forget(driver::DevicePtr at) {
  const Lock lock(mutex_);
  const auto known = shared_.find(at);
  if (known == shared_.end()) return;
  // A receiver that has the memory's files and then finds the proof open has the right files.
  known->second.proof = File();
  shared_.erase(known);
  any_.store(!shared_.empty(), std::memory_order_relaxed);
}

}  // namespace spillway
