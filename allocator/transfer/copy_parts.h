// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "allocator/driver/handles.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// What one call of the driver copies at most. At 50 GB/s a part keeps an urgent copy waiting for
/// 0.7 ms, and what the calls cost is less than a hundredth of the copy.
inline constexpr Bytes kCopyPart{32ULL << 20U};

enum class CopyDirection { kOut, kIn };

/// One copy that one call makes.
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

/// Copies of one direction, cut into parts and gathered into calls of at most kCopyPart each: a
/// large copy becomes several calls, and many small ones become one where the driver has a function
/// for that.
class CopyParts {
 public:
  explicit CopyParts(CopyDirection direction) : direction_(direction) {}

  void add(driver::DevicePtr device, std::byte* host, Bytes size);

  /// Queues them. `queued`: whether any call was made, also where a later one failed. Errors:
  /// kDriver.
  Status submit(const driver::Api& api, driver::Stream stream, bool& queued);

 private:
  Status submit(const driver::Api& api, driver::Stream stream, std::size_t from, std::size_t to);

  // As the driver's function for many copies takes them.
  const CopyDirection direction_;
  std::vector<CUdeviceptr> device_;
  std::vector<CUdeviceptr> host_;
  std::vector<std::size_t> sizes_;
};

}  // namespace spillway
