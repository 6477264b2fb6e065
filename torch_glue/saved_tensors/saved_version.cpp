// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/saved_version.h"

#include "torch_glue/base/compat.h"

#include <atomic>
#include <string>

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

SavedVersion::SavedVersion(const at::Tensor& tensor)
    : counter_(tensor.unsafeGetTensorImpl()->version_counter()) {
  if (counter_.enabled()) saved_ = counter_.current_version();
}

bool SavedVersion::changed() const {
  return counter_.enabled() && counter_.current_version() != saved_;
}

bool SavedVersion::is(const SavedVersion& other) const {
  return compat::counter_identity(counter_) == compat::counter_identity(other.counter_) &&
         saved_ == other.saved_;
}

void SavedVersion::raise(at::IntArrayRef sizes) const {
  throw ChangedTensorError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
      c10::str(
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: a tensor of shape ",
          sizes,
          " is at version ",
          counter_.current_version(),
          "; expected version ",
          saved_,
          " instead. Hint: torch.autograd.set_detect_anomaly(True) shows the forward operation "
          "whose gradient failed."),
      counter_);
}

}  // namespace spillway
