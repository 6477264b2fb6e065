// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spillway/torch/api.h>

#include <cstdint>
#include <string_view>

namespace spillway {

/// For C++ users: tensors that autograd saves on this thread while it lives may go to the host, at
/// most `offload_ratio` of their bytes under `tag`. Works with and without Python; regions nest.
///
/// Threads: ended on the thread that began it.
/// Errors: c10::ValueError for a ratio outside [0, 1], for a tag that is no path (check_tag_name)
/// and for one that has another ratio in this step.
class SPILLWAY_TORCH_API OffloadRegion {
 public:
  explicit OffloadRegion(double offload_ratio, std::string_view tag = "");
  ~OffloadRegion();
  OffloadRegion(const OffloadRegion&) = delete;
  OffloadRegion& operator=(const OffloadRegion&) = delete;

 private:
  std::uint64_t id_;
};

/// Ends the training step: plans are made and statistics latched.
SPILLWAY_TORCH_API void end_step();

}  // namespace spillway
