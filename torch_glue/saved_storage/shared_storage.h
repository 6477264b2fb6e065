// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"
#include "torch_glue/saved_storage/byte_ranges.h"

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace spillway {

inline std::uint64_t address_of(const c10::Storage& storage) {
  return driver::DevicePtr(storage.data()).address();
}

/// What all saved tensors over one storage share, and own together by their handles. A storage that
/// it creates on the device is kept until every handle that existed then has used it once or ended,
/// so that two views share it. After that only the tensors that use it keep it.
///
/// It is identified by the storage object; a weak reference prevents reuse of its address.
/// Threads: safe.
class SharedStorage {
 public:
  virtual ~SharedStorage() = default;
  SharedStorage(const SharedStorage&) = delete;
  SharedStorage& operator=(const SharedStorage&) = delete;

  /// Whether `storage` still has the memory that this entry was created for.
  [[nodiscard]] bool is_of(const c10::StorageImpl& storage) const {
    return storage.data() == data_ && storage.nbytes() == size_.count();
  }

  /// Bytes of the saved storage, from `begin` on.
  struct OnDevice {
    c10::Storage storage;
    Bytes begin;
  };

  /// Makes `bytes` available on the device, usable on the current stream. Returns the original
  /// storage if it still exists. `round`: of the handle, by add_handle().
  /// Errors: c10::Error, c10::OutOfMemoryError; nothing has changed then.
  virtual OnDevice fetch(std::uint64_t& round, const ByteRange& bytes) = 0;

  /// Adds a handle. `round` belongs to it until remove_handle(): the last storage on the device
  /// that it has seen.
  void add_handle(std::uint64_t& round) {
    const LightLock lock(mutex_);
    ++handles_;
    round = round_;
  }

  void remove_handle(std::uint64_t round) {
    const LightLock lock(mutex_);
    has_seen(round);
    if (--handles_ == 0) handles_are_gone();
  }

  /// Releases what it keeps on the device if it has no handle. The next save makes it as before.
  virtual void release_without_handles() {}

 protected:
  explicit SharedStorage(const c10::Storage& storage)
      : source_(storage.getWeakStorageImpl()),
        key_(storage.unsafeGetStorageImpl()),
        data_(storage.data()),
        size_(storage.nbytes()) {}

  /// The original storage if it exists with the same memory.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> original() const {
    auto alive = source_.lock();
    return alive && is_of(*alive) ? alive : nullptr;
  }

  /// Keeps a storage on the device for the present handles.
  void hold(c10::Storage storage) SPILLWAY_REQUIRES(mutex_) {
    held_ = std::move(storage);
    waiting_ = handles_;
    ++round_;
  }

  /// A handle uses it, or ends.
  void has_seen(std::uint64_t& round) SPILLWAY_REQUIRES(mutex_) {
    if (std::exchange(round, round_) == round_ || --waiting_ > 0 || !held_) return;
    before_release();
    held_ = c10::Storage();
  }

  /// The last handle has ended, but something else may own the entry.
  virtual void handles_are_gone() SPILLWAY_REQUIRES(mutex_) {}

  /// The held storage is about to be released.
  virtual void before_release() SPILLWAY_REQUIRES(mutex_) {}

  const c10::weak_intrusive_ptr<c10::StorageImpl> source_;
  c10::StorageImpl* const key_;
  const void* const data_;
  const Bytes size_;

  LightMutex mutex_;
  std::int64_t handles_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  c10::Storage held_ SPILLWAY_GUARDED_BY(mutex_);

 private:
  std::uint64_t round_ SPILLWAY_GUARDED_BY(mutex_) = 0;   // number of storages held so far
  std::int64_t waiting_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // handles that have not seen held_
};

/// One handle's share of a storage's entry. A copy is another handle.
template <typename Storage>
class StorageHandle {
 public:
  StorageHandle() = default;

  explicit StorageHandle(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {
    if (storage_ != nullptr) storage_->add_handle(round_);
  }

  StorageHandle(const StorageHandle& other) : StorageHandle(other.storage_) {}

  StorageHandle(StorageHandle&&) noexcept = default;

  StorageHandle& operator=(StorageHandle other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(round_, other.round_);
    return *this;
  }

  ~StorageHandle() {
    if (storage_ != nullptr) storage_->remove_handle(round_);
  }

  [[nodiscard]] const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// As SharedStorage::fetch.
  SharedStorage::OnDevice fetch(const ByteRange& bytes) { return storage_->fetch(round_, bytes); }

 private:
  std::shared_ptr<Storage> storage_;
  std::uint64_t round_ = 0;
};

}  // namespace spillway
