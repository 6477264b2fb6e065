// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <atomic>
#include <string>

namespace spillway {

/// Total bytes pinned by the processes of one user on this machine, in a small shared file. The
/// file has an entry per process, with its start time. The next call of any process removes the
/// entries of ended processes. An entry stays while its process may still run, also if its state
/// cannot be read. Processes in different PID namespaces (containers) do not share a ledger.
///
/// Threads: safe, also between processes. Each call locks the file and waits at most two seconds
/// for the lock. After one such timeout further calls try the lock once without waiting, until one
/// succeeds.
/// Ownership: keeps no file open; the file stays.
class NodeLedger {
 public:
  /// `folder`: directory of the file. The file is private to its user by name, owner and mode.
  explicit NodeLedger(const std::string& folder = "/dev/shm");

  /// Errors: kInvalidArgument if the file is not a ledger or not this user's own; it is then not
  /// trusted, and neither call below changes anything. kInvalidArgument also if it cannot be opened
  /// or written (file system full, no file descriptor left). kOutOfHostMemory if another process
  /// keeps it locked.
  [[nodiscard]] Status check() const;

  /// Adds `size` to this process's entry.
  /// Errors: kOutOfHostMemory if the total would exceed `limit`, or too many processes have an
  /// entry; as check(). Nothing has changed then.
  Status charge(Bytes size, Bytes limit);

  /// Subtracts `size` from this process's entry. If the file cannot be written, the bytes are
  /// subtracted when the process ends.
  void release(Bytes size);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
  mutable std::atomic<bool> stalled_{false};  // the last attempt to lock the file timed out
};

}  // namespace spillway
