// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <atomic>
#include <string>

namespace spillway {

/// What the processes of one user have pinned together on this machine, in a small file that they
/// share: an entry for each process, with its start time. The next call of any process releases the
/// entries of processes that have ended. An entry whose process may still run is kept, also where
/// its state cannot be read. Processes in different PID namespaces (containers) do not share a
/// ledger.
///
/// Threads: safe, also between processes. Each call locks the file and waits at most two seconds
/// for the lock. After one such wait, further calls try the lock once and do not wait, until one
/// gets it. Ownership: keeps nothing open; the file stays.
class NodeLedger {
 public:
  /// `folder`: where the file is, private to its user by name, owner and mode.
  explicit NodeLedger(const std::string& folder = "/dev/shm");

  /// Errors: kInvalidArgument where the file is not a ledger or not this user's own (it is never
  /// trusted then, and neither of the calls below changes anything), and where it cannot be opened
  /// or written (file system full, no file descriptor left); kOutOfHostMemory where another process
  /// keeps it locked.
  [[nodiscard]] Status check() const;

  /// Adds `size` to this process's entry. Errors: kOutOfHostMemory where all entries together would
  /// exceed `limit`, or too many processes have one; as check(). Nothing has changed then.
  Status charge(Bytes size, Bytes limit);

  /// Takes `size` from this process's entry; what cannot be written is taken back when it ends.
  void release(Bytes size);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
  mutable std::atomic<bool> stalled_{false};  // the last attempt to lock the file ran out of time
};

}  // namespace spillway
