// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <string>

namespace spillway {

/// What the processes of one user have pinned together on this machine, in a small file that they
/// share: an entry for each process, with the time it was started. Entries of processes that have
/// ended are taken back by whoever asks next. Processes that do not see each other (another
/// namespace of process numbers, as containers have) do not share.
///
/// Threads: safe, also between processes; each call locks the file and waits for others at most two
/// seconds. Ownership: keeps nothing open; the file stays.
class NodeLedger {
 public:
  /// `folder`: where the file is, private to its user by name, owner and mode.
  explicit NodeLedger(const std::string& folder = "/dev/shm");

  /// Errors: kInvalidArgument where the file is not a ledger, or not this user's own: it is never
  /// trusted then, and neither of the calls below changes anything; kOutOfHostMemory where somebody
  /// keeps it locked.
  [[nodiscard]] Status check() const;

  /// Adds `size` to this process's entry. Errors: kOutOfHostMemory where all entries together would
  /// exceed `limit`, or too many processes have one; as check(). Nothing has changed then.
  Status charge(Bytes size, Bytes limit);

  /// Takes `size` from this process's entry; what cannot be written is taken back when it ends.
  void give_back(Bytes size);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace spillway
