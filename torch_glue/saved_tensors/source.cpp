// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/source.h"

#include "allocator/runtime/run_log.h"
#include "allocator/runtime/runtime.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

namespace spillway {
namespace {

constexpr std::uint64_t kSteps = 4;

std::atomic<LineSource> line_source{nullptr};

/// Names of autograd nodes whose results have the bytes of their first input.
constexpr std::array<std::string_view, 26> kViews{
    "Alias",       "AsStrided",      "Chunk",   "Detach",  "Diagonal",     "Expand",
    "LiftFresh",   "Narrow",         "Permute", "Reshape", "Select",       "Slice",
    "Split",       "SplitWithSizes", "Squeeze", "T",       "Transpose",    "Unbind",
    "Unfold",      "Unsqueeze",      "View",    "ViewAs",  "ReshapeAlias", "UnsafeView",
    "UnsafeSplit", "ViewAsReal"};

/// "Gelu" of "GeluBackward0".
std::string operator_of(const torch::autograd::Node& node) {
  const std::string name = node.name();
  return name.substr(0, name.find("Backward"));
}

/// The operator that produced the tensor's bytes; "" if autograd does not know it: for a node's own
/// saved results, and for leaves.
std::string maker_of(const at::Tensor& tensor) {
  for (const auto* node = tensor.grad_fn().get(); node != nullptr;) {
    if (node->num_outputs() == 0) return {};  // a leaf
    std::string made_by = operator_of(*node);
    if (std::find(kViews.begin(), kViews.end(), made_by) == kViews.end()) return made_by;
    node = node->next_edge(0).function.get();
  }
  return {};
}

}  // namespace

void set_line_source(LineSource source) {
  line_source = source;
}

void log_source(const at::Tensor& tensor, std::uint64_t storage) {
  if (Runtime::instance().step().number() >= kSteps) return;
  const LineSource line = line_source.load();
  RunLog::instance().came_from(storage, maker_of(tensor), line != nullptr ? line() : "");
}

}  // namespace spillway
