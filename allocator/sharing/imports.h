// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/sharing/memory_handle.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

/// Memory of other processes, mapped for one device of this one.
///
/// Threads: safe. Ownership: must outlive the memory that it returns.
class Imports {
 public:
  explicit Imports(const driver::Device& device) : readers_{device} {}

  /// Maps the memory of a handle (bytes of a MemoryHandle) until its last owner releases it. A
  /// handle that is already mapped is not mapped again. A handle of this process maps its memory a
  /// second time. The mapping stays valid after the sender frees the memory or ends.
  /// Stream: the last release blocks the host until the device has finished all its work (counted
  /// in driver::Counters::host_syncs). If the wait fails, the memory stays mapped.
  /// Errors: kInvalidArgument if it is not a handle. kNotReady if the sender has ended, does not
  /// share the memory any more, or the kernel does not permit it. kOutOfDeviceMemory, kDriver.
  Result<std::shared_ptr<void>> open(const std::string& handle);

  /// Lets another device read and write present and future mappings. Errors: kDriver.
  Status enable_peer(const driver::Device& peer);

 private:
  /// One handle's pieces, at adjacent addresses.
  struct Mapping {
    driver::DevicePtr begin;
    std::vector<Bytes> pieces;

    [[nodiscard]] Bytes size() const;
  };

  struct Known {
    std::weak_ptr<void> memory;
    Mapping mapping;
  };

  [[nodiscard]] const driver::Device& device() const SPILLWAY_REQUIRES(mutex_) {
    return readers_.front();
  }

  Status map(const MemoryHandle& handle, const std::vector<File>& files, Mapping& mapping)
      SPILLWAY_REQUIRES(mutex_);
  void close(const std::string& handle, const Mapping& mapping);

  Mutex mutex_;
  std::vector<driver::Device> readers_ SPILLWAY_GUARDED_BY(mutex_);  // the first is the own device
  std::map<std::string, Known> known_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
