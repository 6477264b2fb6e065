// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/source.h"

#include "allocator/runtime/run_log.h"
#include "allocator/runtime/runtime.h"

#include <torch/csrc/autograd/function.h>

#include <atomic>

namespace spillway {
namespace {

constexpr std::uint64_t kSteps = 4;

std::atomic<LineTeller> line_teller{nullptr};

/// "relu" of "ReluBackward0"; "" where autograd does not know yet, as of what its own node saves.
std::string maker_of(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  if (node == nullptr) return {};
  const std::string name = node->name();
  return name.substr(0, name.find("Backward"));
}

}  // namespace

void set_line_teller(LineTeller teller) {
  line_teller = teller;
}

void tell_source(const at::Tensor& tensor, std::uint64_t storage) {
  if (Runtime::instance().step() >= kSteps) return;
  const LineTeller line = line_teller.load();
  RunLog::instance().came_from(storage, maker_of(tensor), line != nullptr ? line() : "");
}

}  // namespace spillway
