// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "allocator/driver/handles.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// Maximum bytes per driver call. At 50 GB/s a part delays an urgent copy by 0.7 ms, and the calls
/// cost less than a hundredth of the copy.
inline constexpr Bytes kCopyPart{32ULL << 20U};

enum class CopyDirection { kOut, kIn };

/// One copy for a single call.
struct OneCopy {
  driver::DevicePtr device;
  std::byte* host;
  Bytes size;
};

/// Queues it. Errors: kDriver; then nothing is queued.
Status copy_at_once(const driver::Api& api,
                    CopyDirection direction,
                    const OneCopy& copy,
                    driver::Stream stream);

/// Copies of one direction, split into parts and batched into calls of at most kCopyPart each. A
/// large copy becomes several calls. Many small copies become one call if the driver supports
/// batches.
class CopyParts {
 public:
  explicit CopyParts(CopyDirection direction) : direction_(direction) {}

  void add(driver::DevicePtr device, std::byte* host, Bytes size);

  /// Queues them. `queued`: whether any call succeeded, even if a later one failed.
  /// Errors: kDriver.
  Status submit(const driver::Api& api, driver::Stream stream, bool& queued);

 private:
  Status submit(const driver::Api& api, driver::Stream stream, std::size_t from, std::size_t to);

  // In the form that the driver's batch function takes.
  const CopyDirection direction_;
  std::vector<CUdeviceptr> device_;
  std::vector<CUdeviceptr> host_;
  std::vector<std::size_t> sizes_;
};

}  // namespace spillway
