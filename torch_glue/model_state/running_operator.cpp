// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/running_operator.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace spillway {
namespace {

/// The operator whose entry point has that mangled name: "_ZN2at4_ops10add_Tensor4callE...". Empty
/// for other functions. PyTorch joins a name and its overload's by an underscore.
std::string operator_of(std::string_view symbol) {
  constexpr std::string_view kOperators = "_ZN2at4_ops";
  if (!symbol.starts_with(kOperators)) return {};
  symbol.remove_prefix(kOperators.size());
  std::size_t length = 0;
  while (!symbol.empty() && std::isdigit(static_cast<unsigned char>(symbol.front())) != 0) {
    length = 10 * length + static_cast<std::size_t>(symbol.front() - '0');
    symbol.remove_prefix(1);
  }
  return "aten::" + std::string(symbol.substr(0, length));
}

std::string outermost_on_stack() {
  constexpr int kMostFrames = 256;
  std::array<void*, kMostFrames> frames{};
  const int count = backtrace(frames.data(), kMostFrames);
  std::string found;
  for (int i = 0; i < count; ++i) {
    Dl_info known{};
    if (dladdr(frames.at(static_cast<std::size_t>(i)), &known) == 0 || known.dli_sname == nullptr)
      continue;
    if (std::string name = operator_of(known.dli_sname); !name.empty()) found = std::move(name);
  }
  return found;
}

void add(std::vector<at::Tensor>& tensors, const c10::IValue& value) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector())
      if (each.defined()) tensors.push_back(each);
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef())
      if (each.isTensor() && each.toTensor().defined()) tensors.push_back(each.toTensor());
  }
}

}  // namespace

const RunningOperator*& RunningOperator::innermost() {
  thread_local const RunningOperator* running = nullptr;
  return running;
}

std::string RunningOperator::name() {
  const RunningOperator* const running = innermost();
  return running == nullptr ? outermost_on_stack() : toString(running->op_.operator_name());
}

std::vector<at::Tensor> RunningOperator::tensors() {
  std::vector<at::Tensor> found;
  const RunningOperator* const running = innermost();
  if (running == nullptr) return found;
  const std::size_t end =
      std::min(running->stack_.size(), running->first_ + running->op_.schema().arguments().size());
  for (std::size_t i = running->first_; i < end; ++i)
    add(found, running->stack_[i]);
  return found;
}

}  // namespace spillway
