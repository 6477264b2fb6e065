// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/heap/heap.h"

#include <atomic>
#include <map>
#include <string>

namespace spillway {

/// A block for use in another process: an offset in the memory that a handle identifies.
struct SharedBlock {
  std::string handle;  // bytes of a MemoryHandle
  Bytes offset;
};

/// Blocks of a heap that this process exports. Each keeps files open until it is freed: one per
/// piece of memory, and one that proves its handle.
///
/// Threads: safe. Ownership: borrows the heap.
class Exports {
 public:
  explicit Exports(Heap& heap) : heap_(heap) {}

  /// Exports the allocated block that contains `at`; the handle is the same until the block is
  /// freed.
  /// Errors: as Heap::share; kNotReady if no more files can be opened.
  Result<SharedBlock> share(driver::DevicePtr at);

  /// The block that begins at `at` is about to be freed: its handle becomes invalid.
  void freed(driver::DevicePtr at) {
    if (any_.load(std::memory_order_relaxed)) forget(at);
  }

 private:
  struct Export {
    SharedMemory memory;
    File proof;
    std::string handle;
  };

  Result<Export> make(driver::DevicePtr at);
  void forget(driver::DevicePtr at);

  Heap& heap_;
  std::atomic<bool> any_{false};  // shared_ is not empty
  Mutex mutex_;
  std::map<driver::DevicePtr, Export> shared_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
