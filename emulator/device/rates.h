// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cstdint>
#include <string>

namespace spillway::emulator {

/// What multiplies: the numbers' type decides how fast. Numbered as in emulator.h.
enum class Arithmetic : std::uint8_t { kHalf, kTf32, kSingle, kDouble, kFp8, kInt8 };

/// What kind of kernel does: no two reach the same share of the arithmetic's rate. Numbered as in
/// emulator.h.
enum class KernelKind : std::uint8_t { kOther, kProduct, kAttention, kAttentionBackward };

/// How fast a device of the virtual clock is, by default near a large accelerator of 2024.
struct Rates {
  double memory = 4e12;  // bytes per second that kernels, fills and copies within it reach
  double half = 400e12;  // floating point operations per second
  double tf32 = 400e12;
  double single = 400e12;
  double dbl = 400e12;
  double fp8 = 400e12;
  double int8 = 400e12;
  double peers = 400e9;  // bytes per second that go to other devices, in copies and collectives
  double pageable =
      1e18;            // bytes per second of copies to or from the host's pageable memory, at most
  double product = 1;  // of those rates, the share that matrix products and convolutions reach
  double attention = 1;
  double attention_backward = 1;
  double duplex = 1;  // of the link's rates, the share that copies both ways at once reach; below
                      // 0.5 as 0.5: one after the other
  double kernel = 2e-6;  // seconds that a kernel, fill or copy within devices takes besides
  double launch = 4e-6;  // what an operator costs the host, besides what it calls
  double call = 1e-6;    // what a call costs the host
  double hop = 0;        // what a stream that waits loses behind the event that it waits for

  /// Seconds of this many operations, where nothing else limits them.
  [[nodiscard]] double seconds(double flops, Arithmetic arithmetic, KernelKind kind) const;
};

/// "memory=3.35e12,half=989e12,product=0.75": those that are left out stay as they are. Errors:
/// kInvalidArgument for unknown names, what is no number above 0, shares and times above 1.
Result<Rates> parse_rates(const std::string& text);

}  // namespace spillway::emulator
