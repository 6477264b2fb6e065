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
/// Threads: safe. Ownership: must outlive what it gives.
class Imports {
 public:
  explicit Imports(const driver::Device& device) : readers_{device} {}

  /// The memory that a handle names (bytes of a MemoryHandle), mapped until its last owner lets it
  /// go; once, however often it is opened meanwhile. A handle of this process maps its memory
  /// again. It stays usable when the sender frees it or ends.
  /// Stream: the code that releases last blocks the host until the device is done with all its work
  /// (counted in driver::Counters::host_syncs); what cannot be waited for stays mapped.
  /// Errors: kInvalidArgument for what is no handle; kNotReady where the sender has ended or does
  /// not share the memory any more, or the kernel does not permit it; kOutOfDeviceMemory, kDriver.
  Result<std::shared_ptr<void>> open(const std::string& handle);

  /// Lets another device read and write what is mapped, now and in future. Errors: kDriver.
  Status enable_peer(const driver::Device& peer);

 private:
  /// One handle's pieces, side by side.
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
  std::vector<driver::Device> readers_ SPILLWAY_GUARDED_BY(mutex_);  // the first is its own
  std::map<std::string, Known> known_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
