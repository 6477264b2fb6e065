// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace spillway::emulator {

/// The arithmetic units: the number type determines the rate. Numbered as in emulator.h.
enum class Arithmetic : std::uint8_t { kHalf, kTf32, kSingle, kDouble, kFp8, kInt8 };

/// The kind of a kernel: each kind reaches its own share of the arithmetic's rate. Numbered as in
/// emulator.h.
enum class KernelKind : std::uint8_t { kOther, kProduct, kAttention, kAttentionBackward };

/// The rates of a device on the virtual clock, by default close to a large accelerator of 2024.
struct Rates {
  double memory = 4e12;  // bytes per second of kernels, fills and copies within the device
  double half = 400e12;  // floating point operations per second
  double tf32 = 400e12;
  double single = 400e12;
  double dbl = 400e12;
  double fp8 = 400e12;
  double int8 = 400e12;
  double peers = 400e9;    // bytes per second to other devices, in copies and collectives
  double pageable = 1e18;  // maximum bytes per second of copies to or from pageable host memory
  double product = 1;      // share of those rates that matrix products and convolutions reach
  double attention = 1;
  double attention_backward = 1;
  // share of the link's rates that concurrent copies in both directions reach; at most 0.5: they
  // run one after the other
  double duplex = 1;
  double kernel = 2e-6;  // seconds of overhead of a kernel, fill or copy within devices
  double launch = 4e-6;  // host time of an operator, without its calls
  double call = 1e-6;    // host time of a call
  double hop = 0;        // delay of a waiting stream after the event that it waits for

  /// Seconds of that many operations without other limits.
  [[nodiscard]] double seconds(double flops, Arithmetic arithmetic, KernelKind kind) const;
};

/// A valid value of SPILLWAY_EMULATE_RATES, such as "memory=3.35e12,half=989e12,product=0.75":
/// omitted names have their default.
Rates parse_rates(std::string_view text);

}  // namespace spillway::emulator
