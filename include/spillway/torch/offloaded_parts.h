// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <spillway/torch/api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace spillway {

class OffloadedShards;

/// For C++ users: a model in parts whose parameters and buffers are stored on the host, in pinned
/// memory or in a file, and share the device in rotation. The tensors stay the same objects, so an
/// optimizer that has them runs on the host. Gradients are on the host when the backward pass
/// returns.
///
///     spillway::OffloadedParts parts({{first->parameters(), first->buffers()}, ...}, device);
///     parts.begin();
///     parts.run(0, [&] { x = first->forward(x); });
///
/// Threads: run() on one thread at a time, which it checks; backward passes on any.
/// Ownership: shares the host memory with the graphs created inside.
class SPILLWAY_TORCH_API OffloadedParts {
 public:
  struct Part {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> buffers;
  };

  struct Stats {
    std::uint64_t loaded_bytes;    // copied to the device, since creation
    std::uint64_t gradient_bytes;  // copied to the host, since creation
    std::uint64_t slot_bytes;      // device memory for parts, now
    std::uint64_t extra_slots;     // number of times a part needed additional memory
  };

  /// At most `slots` parts are on the device at a time, unless tensors in use reference all of
  /// them: then a part gets additional memory (Stats::extra_slots). With a `directory`, the tensors
  /// and their gradients are stored in a mapped file there that has no name. run() then waits for a
  /// part that has not been read yet.
  ///
  /// Errors: c10::ValueError for no parts, for 0 slots, for a device without an index, and for a
  /// tensor that is not contiguous; c10::Error if the tensors cannot be moved. Nothing has changed
  /// then.
  OffloadedParts(const std::vector<Part>& parts,
                 c10::Device device,
                 std::size_t slots = 2,
                 const std::string& directory = {});
  ~OffloadedParts();
  OffloadedParts(const OffloadedParts&) = delete;
  OffloadedParts& operator=(const OffloadedParts&) = delete;

  /// Begins a forward pass: parts are loaded again, because parameters may have changed since the
  /// last one. Without it, run() may use the values of the last pass.
  void begin();

  /// Runs `function` with the part's tensors on the device. `part` counts from 0; parts can run in
  /// any order. Checkpointed functions inside it are
  /// recomputed with these tensors, too.
  /// Stream: the current one. The host waits only for a part in a file.
  /// Errors: c10::Error if another thread is in run(); c10::IndexError if there is no such part;
  /// exceptions of the function.
  void run(std::size_t part, const std::function<void()>& function);

  /// Blocks the host until no copy reads or writes the tensors. The end of a backward pass does so
  /// too.
  void wait_for_copies();

  [[nodiscard]] Stats stats() const;

 private:
  const std::shared_ptr<OffloadedShards> shards_;
};

}  // namespace spillway
