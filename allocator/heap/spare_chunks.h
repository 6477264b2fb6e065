// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/accounting.h"

#include <optional>
#include <vector>

namespace spillway {

/// Physical device memory. It is mapped at one address at a time, and mapped and unmapped whole.
struct Chunk {
  Bytes size;
  CUmemGenericAllocationHandle handle;
  bool exported = false;  // other processes may map it
};

/// Chunks that are unmapped at one address and about to be mapped at another one: creating and
/// releasing physical memory are the driver's slowest calls. In the accounting their memory is
/// already released.
///
/// Threads: callers hold the heap's lock.
/// Ownership: owns the chunks; borrows `accounting`.
class SpareChunks {
 public:
  SpareChunks(const driver::Device& device, Accounting& accounting)
      : device_(device), accounting_(accounting) {}

  ~SpareChunks() { release_all(); }

  SpareChunks(const SpareChunks&) = delete;
  SpareChunks& operator=(const SpareChunks&) = delete;

  /// Chunks are kept while it exists. What has not been used by then is released.
  class Scope {
   public:
    explicit Scope(SpareChunks& spares) : spares_(spares) { ++spares_.scopes_; }

    ~Scope() {
      if (--spares_.scopes_ == 0) spares_.release_all();
    }

    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SpareChunks& spares_;
  };

  /// Keeps an unmapped chunk. Returns false, without a change, if there is no scope or other
  /// processes may map it.
  bool keep(const Chunk& chunk);

  /// The largest one of at most this size; none if it has less than half of it.
  std::optional<Chunk> take(Bytes size);

  /// Makes room for a new chunk of this size: with it, no more memory exists than before.
  void make_room(Bytes size);

  /// Releases an unmapped chunk, which it does not keep. False if the driver refuses.
  bool release(const Chunk& chunk);

  /// Bytes that the driver refused to release: reserved until the process ends.
  [[nodiscard]] Bytes lost() const { return lost_; }

 private:
  void release_all();
  void release_last();

  const driver::Device device_;
  Accounting& accounting_;
  std::vector<Chunk> chunks_;
  int scopes_ = 0;
  Bytes lost_;
};

}  // namespace spillway
