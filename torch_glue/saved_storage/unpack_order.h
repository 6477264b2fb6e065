// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

class SavedStorage;

/// The order in which the storages of a tag are used in the backward pass, and the prefetches that
/// follow from it. It prefetches the storages that followed the one in use in the last step. If
/// that is unknown, it prefetches those saved before it. Prefetched and unused is at most one
/// storage, or at most the headroom's bytes.
///
/// Threads: safe. A storage calls it with or without its own lock; it calls storages without a
/// lock.
/// Ownership: one per tag, never destroyed; owns no storage.
class UnpackOrder {
 public:
  static UnpackOrder& of(TagId tag);

  /// Reports an offloaded storage. `headroom`: none for one storage at a time.
  void offloaded(const Site& site,
                 SavedStorage& storage,
                 Bytes size,
                 std::optional<Bytes> headroom);
  /// Reports that more of it was offloaded; `size` is the total to fetch.
  void grew(const Site& site, Bytes size);
  /// Reports its first use on this stream since its fetch; the next prefetches begin.
  void used(const Site& site, const SavedStorage* storage, c10::cuda::CUDAStream consumer);
  /// Removes a storage that has ended.
  void gone(const SavedStorage* storage);

 private:
  struct Offloaded {
    std::weak_ptr<SavedStorage> storage{};
    const SavedStorage* identity = nullptr;
    Bytes size{};
  };

  std::shared_ptr<SavedStorage> take_next(std::size_t& position, bool recorded)
      SPILLWAY_REQUIRES(mutex_);
  void forget(const SavedStorage* storage) SPILLWAY_REQUIRES(mutex_);
  void begin_step(std::uint64_t step) SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] bool has_room_for(const Offloaded& offloaded) const SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] bool is_early(const SavedStorage* storage) const SPILLWAY_REQUIRES(mutex_);

  LightMutex mutex_;
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::vector<Offloaded> offloaded_ SPILLWAY_GUARDED_BY(mutex_);  // by index in the step
  std::optional<Bytes> headroom_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::size_t> order_ SPILLWAY_GUARDED_BY(mutex_);   // indices of this step
  std::vector<std::size_t> before_ SPILLWAY_GUARDED_BY(mutex_);  // of the last step
  std::vector<std::size_t> positions_
      SPILLWAY_GUARDED_BY(mutex_);  // positions in before_, by index
  // a few entries
  std::vector<std::pair<const SavedStorage*, Bytes>> early_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes early_bytes_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
