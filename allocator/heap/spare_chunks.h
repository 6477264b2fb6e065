// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/former_mappings.h"

#include <optional>
#include <vector>

namespace spillway {

/// Physical device memory. It is mapped and unmapped whole, at one address at a time except for
/// FormerMappings and views (Backing::view).
struct Chunk {
  Bytes size;
  CUmemGenericAllocationHandle handle;
  bool exported = false;    // other processes may map it
  driver::FenceSet uses{};  // of a spare chunk: its next user comes after them (Backing::leave)
};

/// Chunks that have left one address and are about to be mapped at another one: creating and
/// releasing physical memory are the driver's slowest calls. A stream uses one after its last uses
/// (Chunk::uses). Under a target, chunks that nothing
/// has used stay for the next scope: a release would wait until their former mappings can end.
/// Within a scope their memory counts as released, otherwise as reserved.
///
/// Threads: callers hold the heap's lock.
/// Ownership: owns the chunks; borrows `accounting`.
class SpareChunks {
 public:
  SpareChunks(const driver::Device& device, Accounting& accounting)
      : device_(device), accounting_(accounting), formers_(device) {}

  ~SpareChunks() { trim(); }

  SpareChunks(const SpareChunks&) = delete;
  SpareChunks& operator=(const SpareChunks&) = delete;

  /// The stream that uses a chunk; none: any stream.
  using User = std::optional<driver::Stream>;

  /// What the user has to wait for before it uses a chunk: not its own work.
  static driver::FenceSet uses_by_others(const Chunk& chunk, const User& user);

  /// Chunks are kept while it exists. What has not been used by then is released, after a wait of
  /// the host if the device still uses it. Under a target, what it has room for stays, and what the
  /// device still uses.
  class Scope {
   public:
    explicit Scope(SpareChunks& spares) : spares_(spares) {
      if (spares_.scopes_++ == 0) spares_.begin_scope();
    }

    ~Scope() {
      if (--spares_.scopes_ == 0) spares_.end_scope();
    }

    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SpareChunks& spares_;
  };

  /// The former mappings of all chunks of the heap.
  [[nodiscard]] FormerMappings& formers() { return formers_; }

  /// Whether add() keeps it: within a scope, unless other processes may map it.
  [[nodiscard]] bool keeps(const Chunk& chunk) const { return scopes_ > 0 && !chunk.exported; }

  /// Takes a chunk that is not mapped except for former mappings, and not in the accounting. Keeps
  /// it, or ends the former mappings and releases it. What the driver refuses to end stays.
  /// Stream: as FormerMappings::clear.
  void add(const Chunk& chunk);

  /// A chunk of at most this size: one of at least half of it first, of these the one that the user
  /// has to wait for least long, then the largest. None if all have less than half, while there is
  /// room for `more` new bytes.
  std::optional<Chunk> take(Bytes size, Bytes more, const User& user);

  /// Where `size` bytes are going to be mapped in chunks of at most `most`: how many bytes more the
  /// chunks have that take() gives, because new bytes have no room.
  [[nodiscard]] Bytes surplus(Bytes size, Bytes most, const User& user) const;

  /// Makes room for this many new bytes, not in the accounting yet: within the budget if there is
  /// one, else within the target. Without both, no more memory exists with them than before.
  void make_room(Bytes size);

  /// Releases a chunk, for which it may wait. False if there is none.
  bool release_one() { return release_one(Wait::kAllowed); }

  /// Releases all chunks, unless there is a scope. Returns the released bytes. Stream: as
  /// FormerMappings::clear.
  Bytes trim();

  /// Bytes of all chunks.
  [[nodiscard]] Bytes bytes() const;

  /// Bytes that the driver refused to release: reserved until the process ends.
  [[nodiscard]] Bytes lost() const { return lost_; }

 private:
  enum class Wait : bool { kNever, kAllowed };

  void begin_scope();
  void end_scope();

  /// For new bytes beside all chunks: within the budget if there is one, else within the target.
  [[nodiscard]] bool has_room(Bytes size) const;
  bool release_one(Wait wait);
  bool release(const Chunk& chunk);
  static std::vector<Chunk>::iterator best(std::vector<Chunk>& chunks,
                                           Bytes size,
                                           const User& user);
  static std::uint64_t last_point(const Chunk& chunk, const User& user);

  const driver::Device device_;
  Accounting& accounting_;
  FormerMappings formers_;
  std::vector<Chunk> chunks_;
  int scopes_ = 0;
  Bytes lost_;
};

}  // namespace spillway
