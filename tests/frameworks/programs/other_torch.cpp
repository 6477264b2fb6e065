// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

// All that is asked of a PyTorch before its version is known. Built twice, as libtorch_cpu.so and
// as libtorch_cuda.so: a PyTorch 2.99.1.
extern "C" __attribute__((visibility("default"))) std::uint64_t aoti_torch_abi_version() {
  return (std::uint64_t{2} << 56U) | (std::uint64_t{99} << 48U) | (std::uint64_t{1} << 40U);
}
