// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/random_start.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>

namespace spillway {
namespace {

std::mutex& drawing() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

RandomStart RandomStart::of(c10::DeviceIndex device) {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return {device, generator.current_seed(), generator.get_offset()};
}

DrawAgain::DrawAgain(const RandomStart& start)
    : one_at_a_time_(drawing()),
      generator_(at::cuda::detail::getDefaultCUDAGenerator(start.device)) {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  seed_ = generator_.current_seed();
  offset_ = generator_.get_offset();
  set(start.seed, start.offset);
}

DrawAgain::~DrawAgain() {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  set(seed_, offset_);
}

void DrawAgain::set(std::uint64_t seed, std::uint64_t offset) {
  if (generator_.current_seed() != seed) generator_.set_current_seed(seed);
  generator_.set_offset(offset);
}

}  // namespace spillway
