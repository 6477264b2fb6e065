// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/imports.h"

#include "allocator/sharing/memory_handle.h"

#include <cstdint>
#include <utility>

namespace spillway {
namespace {

/// Whether a file of the sender contains this handle.
bool proves(const File& proof, const std::string& handle) {
  std::string found(handle.size() + 1, '\0');
  const auto size = pread(proof.number(), found.data(), found.size(), 0);
  return size == static_cast<ssize_t>(handle.size()) &&
         found.compare(0, handle.size(), handle) == 0;
}

/// The files of a handle that the sender still shares.
Result<std::vector<File>> files_of(const MemoryHandle& handle, const std::string& bytes) {
  SPILLWAY_ASSIGN_OR_RETURN(const OtherProcess sender,
                            OtherProcess::open(handle.process, handle.started));
  std::vector<File> files;
  for (const MemoryHandle::Piece& piece : handle.pieces) {
    SPILLWAY_ASSIGN_OR_RETURN(File file, sender.take(piece.file));
    files.push_back(std::move(file));
  }
  // After them: the sender closes it first, so until now all descriptors were valid.
  SPILLWAY_ASSIGN_OR_RETURN(const File proof, sender.take(handle.proof));
  if (!proves(proof, bytes)) {
    return SPILLWAY_ERROR(
        Code::kNotReady,
        "process " + std::to_string(handle.process) +
            " does not share this memory, or no longer does. Keep the tensor alive in the sender.");
  }
  return files;
}

void unmap(const driver::Api& api, driver::DevicePtr begin, const std::vector<Bytes>& pieces) {
  for (const Bytes size : pieces) {
    api.MemUnmap(begin.address(), size.count());
    begin = begin + size;
  }
}

}  // namespace

Bytes Imports::Mapping::size() const {
  Bytes size;
  for (const Bytes piece : pieces)
    size += piece;
  return size;
}

Result<std::shared_ptr<void>> Imports::open(const std::string& bytes) {
  SPILLWAY_ASSIGN_OR_RETURN(const MemoryHandle handle, MemoryHandle::read(bytes));
  const Lock lock(mutex_);
  if (const auto known = known_.find(bytes); known != known_.end()) {
    if (auto memory = known->second.memory.lock()) return memory;
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<File> files, files_of(handle, bytes));
  Mapping mapping;
  SPILLWAY_RETURN_IF_ERROR(map(handle, files, mapping));
  std::shared_ptr<void> memory(mapping.begin.raw(),
                               [this, bytes, mapping](void*) { close(bytes, mapping); });
  known_.insert_or_assign(bytes, Known{memory, mapping});
  return memory;
}

Status Imports::map(const MemoryHandle& handle, const std::vector<File>& files, Mapping& mapping) {
  const driver::Api& api = *device().api;
  const driver::CurrentDevice current(api, device().context);
  const driver::OutsideCaptures outside(api);
  const Bytes size = handle.size();
  SPILLWAY_ASSIGN_OR_RETURN(mapping.begin, driver::reserve_addresses(device(), size));
  std::vector<CUmemAccessDesc> access;
  for (const driver::Device& reader : readers_)
    access.push_back(driver::access_of(reader.id));
  const auto map_all = [&]() -> Status {
    driver::DevicePtr at = mapping.begin;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const Bytes piece = handle.pieces[i].size;
      // CUDA takes the file descriptor as if it were a pointer.
      auto* const file = driver::DevicePtr(static_cast<CUdeviceptr>(files[i].number())).raw();
      CUmemGenericAllocationHandle memory{};
      SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api,
                                             MemImportFromShareableHandle,
                                             &memory,
                                             file,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
      Status mapped = SPILLWAY_CALL(api, MemMap, at.address(), piece.count(), 0, memory, 0);
      api.MemRelease(memory);  // the mapping keeps it
      if (!mapped.ok()) return mapped;
      mapping.pieces.push_back(piece);
      at = at + piece;
    }
    return SPILLWAY_CALL(
        api, MemSetAccess, mapping.begin.address(), size.count(), access.data(), access.size());
  };
  Status status = map_all();
  if (!status.ok()) {
    unmap(api, mapping.begin, mapping.pieces);
    api.MemAddressFree(mapping.begin.address(), size.count());
  }
  return status;
}

void Imports::close(const std::string& handle, const Mapping& mapping) {
  std::vector<driver::Device> readers;
  {
    const Lock lock(mutex_);
    readers = readers_;
    // A concurrent open maps it a second time.
    const auto known = known_.find(handle);
    if (known != known_.end() && known->second.memory.expired()) known_.erase(known);
  }
  const driver::Api& api = *readers.front().api;
  const driver::OutsideCaptures outside(api);
  for (const driver::Device& reader : readers) {
    const driver::CurrentDevice current(api, reader.context);
    driver::count_host_sync();
    if (api.CtxSynchronize() != CUDA_SUCCESS) return;
  }
  const driver::CurrentDevice current(api, readers.front().context);
  unmap(api, mapping.begin, mapping.pieces);
  api.MemAddressFree(mapping.begin.address(), mapping.size().count());
}

Status Imports::enable_peer(const driver::Device& peer) {
  // Released after the lock, which the last owner takes.
  std::vector<std::shared_ptr<void>> mapped;
  const Lock lock(mutex_);
  for (const driver::Device& reader : readers_) {
    if (reader.id == peer.id) return {};
  }
  const driver::CurrentDevice current(*device().api, device().context);
  const std::vector<CUmemAccessDesc> access{driver::access_of(peer.id)};
  for (const auto& [handle, known] : known_) {
    mapped.push_back(known.memory.lock());
    if (mapped.back() == nullptr) continue;
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device().api,
                                           MemSetAccess,
                                           known.mapping.begin.address(),
                                           known.mapping.size().count(),
                                           access.data(),
                                           access.size()));
  }
  readers_.push_back(peer);
  return {};
}

}  // namespace spillway
