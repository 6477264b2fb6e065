// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace spillway {

struct PassedTensor;

/// The tensors that a thread has saved, by their storages and by the nodes that computed them: how
/// an operand that some node saves is obtained. It extends no lifetime. Threads: confined.
class SavedTraces {
 public:
  static SavedTraces& of_thread();

  /// Adds a tensor that has been packed. `with_node`: also as the result of its node.
  void add(const at::Tensor& tensor, const PackHook& packed, bool with_node);

  /// A handle of the operand, if a saved tensor covers its bytes at its version; null otherwise.
  [[nodiscard]] std::shared_ptr<PackHook> find(const PassedTensor& operand) const;

  struct Found {
    std::shared_ptr<PackHook> handle;    // null if there is none
    std::optional<at::ScalarType> cast;  // the result is the handle's tensor, cast to this type
  };

  /// The result behind the edge, if it was saved at that version. Also where only its cast to a
  /// larger type was saved, from which it has the same bits.
  [[nodiscard]] Found find(const torch::autograd::Edge& edge, std::uint32_t version) const;

 private:
  struct Result {
    compat::WeakNodePtr node;
    std::uint32_t output;
    std::uint32_t version;
    PackHook::Trace trace;
    std::optional<at::ScalarType> cast;

    [[nodiscard]] bool expired() const { return node.expired() || trace.expired(); }
  };

  void add_result(const torch::autograd::Edge& edge,
                  std::uint32_t version,
                  PackHook::Trace trace,
                  std::optional<at::ScalarType> cast = std::nullopt);
  void drop_expired();

  std::unordered_map<const c10::StorageImpl*, c10::SmallVector<PackHook::Trace, 1>> storages_;
  std::unordered_map<const torch::autograd::Node*, c10::SmallVector<Result, 1>> results_;
  std::size_t full_ = 512;  // size at which expired entries are dropped
};

}  // namespace spillway
