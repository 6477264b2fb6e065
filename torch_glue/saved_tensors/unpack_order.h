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

/// In which order the storages of a tag are wanted again, and which of them are fetched before they
/// are: those that followed the one that is used now in the last step, or, where it is unknown,
/// were saved before it. What is back and not used yet is one storage, or has at most the
/// headroom's bytes.
///
/// Threads: safe. A storage calls it with or without its own lock; it calls storages without a
/// lock. Ownership: one for each tag, never destroyed; owns no storage.
class UnpackOrder {
 public:
  static UnpackOrder& of(TagId tag);

  /// The storage has moved. `headroom`: none for one storage at a time.
  void moved(const Site& site, SavedStorage& storage, Bytes size, std::optional<Bytes> headroom);
  /// More of it has moved: this many bytes are fetched.
  void grew(const Site& site, Bytes size);
  /// It is used on this stream for the first time since it was fetched: the ways back of the next
  /// ones begin.
  void used(const Site& site, const SavedStorage* storage, c10::cuda::CUDAStream consumer);
  /// It has ended.
  void gone(const SavedStorage* storage);

 private:
  struct Moved {
    std::weak_ptr<SavedStorage> storage{};
    const SavedStorage* identity = nullptr;
    Bytes size{};
  };

  std::shared_ptr<SavedStorage> take_next(std::size_t& place, bool recorded)
      SPILLWAY_REQUIRES(mutex_);
  void forget(const SavedStorage* storage) SPILLWAY_REQUIRES(mutex_);
  void begin_step(std::uint64_t step) SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] bool has_room_for(const Moved& moved) const SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] bool is_early(const SavedStorage* storage) const SPILLWAY_REQUIRES(mutex_);

  LightMutex mutex_;
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::vector<Moved> moved_ SPILLWAY_GUARDED_BY(mutex_);  // by index in the step
  std::optional<Bytes> headroom_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::size_t> order_ SPILLWAY_GUARDED_BY(mutex_);   // of this step, indices
  std::vector<std::size_t> before_ SPILLWAY_GUARDED_BY(mutex_);  // of the last one
  std::vector<std::size_t> places_ SPILLWAY_GUARDED_BY(mutex_);  // in before_, by index
  std::vector<std::pair<const SavedStorage*, Bytes>> early_ SPILLWAY_GUARDED_BY(mutex_);  // a few
  Bytes early_bytes_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
