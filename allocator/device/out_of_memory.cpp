// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/out_of_memory.h"

#include "allocator/plan/operands.h"

namespace spillway {

std::string out_of_memory_text(DeviceRuntime& runtime, Bytes size, const Status& why) {
  const driver::Device& device = runtime.device();
  const auto memory = driver::memory_info(device);
  // If the driver cannot report its memory, the first error is reported.
  const auto [available, total] = memory.ok() ? memory.value() : driver::MemoryInfo{};
  const Bytes limit = runtime.heap().limits().limit();
  std::string text = "CUDA out of memory. Tried to allocate " + readable(size) + ". GPU " +
                     std::to_string(static_cast<int>(device.id));
  if (driver::emulated()) text += " (emulated)";
  text += " has a total capacity of " + readable(total) + " of which " + readable(available) +
          " is free";
  if (!limit.zero()) text += "; this process is limited to " + readable(limit);
  // Everything that can be offloaded has been, up to here.
  if (AllocationCurve& curve = runtime.curve(); curve.on() && !curve.in_optimizer_phase()) {
    text += "; a budget of spillway.offload for this step must be at least " +
            setting_of(needed_so_far(curve.so_far()) + size) + " (a lower bound)";
  }
  return text + ". Spillway's heap: " + std::string(why.detail()) +
         ". More may fit with a larger offload_ratio (spillway.CPUOffload) or a smaller batch.";
}

}  // namespace spillway
