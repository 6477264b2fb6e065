// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/operator_notes.h"
#include "torch_glue/rebuild/rules.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>
#include <tuple>

namespace spillway {
namespace {

/// While it lives, the device's generator goes on from where a dropout began.
class DrawAgain {
 public:
  explicit DrawAgain(const OperatorNote::Drawn& drawn)
      : one_at_a_time_(mutex()),
        generator_(at::cuda::detail::getDefaultCUDAGenerator(drawn.options.device().index())) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    seed_ = generator_.current_seed();
    offset_ = generator_.get_offset();
    set(drawn.seed, drawn.offset);
  }

  ~DrawAgain() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    set(seed_, offset_);
  }

  DrawAgain(const DrawAgain&) = delete;
  DrawAgain& operator=(const DrawAgain&) = delete;

 private:
  static std::mutex& mutex() {
    static auto* const all = new std::mutex;
    return *all;
  }

  void set(std::uint64_t seed, std::uint64_t offset) {
    if (generator_.current_seed() != seed) generator_.set_current_seed(seed);
    generator_.set_offset(offset);
  }

  const std::lock_guard<std::mutex> one_at_a_time_;
  at::Generator generator_;
  std::uint64_t seed_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace

std::unique_ptr<Recipe> recipe_of_mask(const at::Tensor& mask) {
  const auto& note = current_note();
  if (note == nullptr || !note->drawn || mask.scalar_type() != at::kBool ||
      !mask.sizes().equals(note->drawn->sizes)) {
    return nullptr;
  }
  return Recipe::of_nothing([note](Recipe::Values) {
    const auto& drawn = *note->drawn;
    // Which numbers a kernel draws depends on how its input lies, not on what is in it.
    const at::Tensor input = at::empty_strided(drawn.sizes, drawn.strides, drawn.options);
    const DrawAgain generator(drawn);
    return std::get<1>(at::native_dropout(input, drawn.p, true));
  });
}

}  // namespace spillway
