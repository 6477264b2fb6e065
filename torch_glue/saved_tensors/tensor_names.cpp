// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/tensor_names.h"

#include <atomic>

namespace spillway {
namespace {

std::atomic<std::string (*)(const c10::VariableVersion&)> finder{nullptr};

}  // namespace

void set_name_finder(std::string (*find)(const c10::VariableVersion& counter)) {
  finder = find;
}

void add_name(ChangedTensorError& error) {
  auto* const find = finder.load();
  const std::string name = find != nullptr ? find(error.counter()) : std::string();
  if (!name.empty()) error.add_context("the tensor is " + name);
}

}  // namespace spillway
