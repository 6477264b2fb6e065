// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/results_elsewhere.h"

#include "torch_glue/compat.h"

#include <array>
#include <cstddef>
#include <optional>

namespace spillway {
namespace {

/// A GELU that is written out saves what it is given some operators before it needs it again.
constexpr std::size_t kMost = 32;

struct Entry {
  compat::WeakNodePtr node;
  const torch::autograd::Node* address;
  std::uint32_t output;
  PackHook::Trace trace;
};

struct Entries {
  std::array<std::optional<Entry>, kMost> last;
  std::size_t next = 0;
};

Entries& entries() {
  thread_local Entries those;
  return those;
}

}  // namespace

void note_result(const at::Tensor& tensor, const PackHook& packed) {
  const auto& node = tensor.grad_fn();
  auto trace = node != nullptr ? packed.trace() : std::nullopt;
  if (!trace) return;
  Entries& known = entries();
  known.last[known.next++ % kMost].emplace(Entry{compat::WeakNodePtr(node),
                                                 node.get(),
                                                 static_cast<std::uint32_t>(tensor.output_nr()),
                                                 std::move(*trace)});
}

std::shared_ptr<PackHook> result_elsewhere(const torch::autograd::Edge& edge,
                                           std::uint32_t version) {
  for (const auto& entry : entries().last) {
    const bool its = entry && entry->address == edge.function.get() &&
                     entry->output == edge.input_nr && !entry->node.expired();
    if (!its) continue;
    if (auto handle = PackHook::of_trace(entry->trace, version)) return handle;
  }
  return nullptr;
}

}  // namespace spillway
