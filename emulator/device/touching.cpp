// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/touching.h"

#include <cstdio>

namespace spillway::emulator {
namespace {

/// Null if the access is permitted, otherwise the reason against it.
const char* problem_in_block(const Machine& machine,
                             const Allocations::Block& block,
                             int device,
                             bool write) {
  if (block.pooled) {
    return Allocations::pool_allows(block, device, write)
               ? nullptr
               : "its memory pool gives this device no such access (cudaMemPoolSetAccess)";
  }
  return machine.peers.may(device, block.device)
             ? nullptr
             : "it is memory of another device, without peer access to it";
}

const char* problem(const Machine& machine, int device, Range range, bool write, Range* granted) {
  if (const Allocations::Block* block = machine.allocations.holding(range)) {
    *granted = block->range;
    return problem_in_block(machine, *block, device, write);
  }
  if (machine.allocations.overlaps(range)) return "it leaves its allocation";
  if (machine.virtual_memory.overlaps(range)) {
    if (machine.virtual_memory.allows(range, device, write, granted)) return nullptr;
    return machine.virtual_memory.mapped(range)
               ? "this device was given no such access (cuMemSetAccess)"
               : "it is not mapped";
  }
  if (const auto locked = machine.host.around(range)) {
    *granted = *locked;
    return nullptr;
  }
  return "it is neither device memory nor page-locked host memory";
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): one access, whole
bool touch(
    Machine& machine, int device, Range range, bool write, const char* operation, Range* granted) {
  const char* wrong = problem(machine, device, range, write, granted);
  if (wrong == nullptr) return true;
  machine.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  std::fprintf(stderr,
               "spillway-emulator: illegal address: \"%s\" on device %d %s %zu bytes at %p: %s\n",
               operation,
               device,
               write ? "writes" : "reads",
               range.bytes(),
               range.at(),
               wrong);
  return false;
}

}  // namespace spillway::emulator
