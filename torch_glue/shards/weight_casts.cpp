// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/weight_casts.h"

#include <ATen/core/grad_mode.h>

#include <cstring>
#include <utility>

namespace spillway {
namespace {

thread_local WeightCasts* current = nullptr;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

/// A cast in progress.
struct WeightCasts::Beginning : at::ObserverContext {
  explicit Beginning(at::Tensor of) : weight(std::move(of)) {}

  const at::Tensor weight;
};

WeightCasts::WeightCasts(const c10::StorageImpl* weights, IsWeight is_weight)
    : weights_(weights),
      is_weight_(std::move(is_weight)),
      outer_(std::exchange(current, this)),
      watching_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}

WeightCasts::~WeightCasts() {
  at::removeCallback(watching_);
  current = outer_;
}

std::unique_ptr<at::ObserverContext> WeightCasts::begin(const at::RecordFunction& call) {
  if (current == nullptr || std::strcmp(call.name(), "aten::_to_copy") != 0) return nullptr;
  const auto inputs = call.inputs();
  if (inputs.empty() || !inputs[0].isTensor()) return nullptr;
  const at::Tensor& input = inputs[0].toTensor();
  if (storage_of(input) != current->weights_ || !current->is_weight_(input)) return nullptr;
  return std::make_unique<Beginning>(input);
}

void WeightCasts::end(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto* const beginning = dynamic_cast<Beginning*>(context);
  if (beginning == nullptr || current == nullptr) return;
  const auto outputs = call.outputs();
  if (outputs.size() != 1 || !outputs[0].isTensor()) return;
  const at::Tensor& cast = outputs[0].toTensor();
  const at::Tensor& weight = beginning->weight;
  const auto& version = cast.unsafeGetTensorImpl()->version_counter();
  const bool identifiable = cast.device() == weight.device() && cast.has_storage() &&
                            cast.strides() == weight.strides() && cast.storage_offset() == 0 &&
                            version.enabled();
  if (!identifiable) return;
  const c10::Storage& storage = cast.storage();
  current->known_.insert_or_assign(
      storage.unsafeGetStorageImpl(),
      Known{storage.getWeakStorageImpl(),
            version.current_version(),
            std::make_shared<const Cast>(
                Cast{Layout(weight), SavedVersion(weight), cast.scalar_type()})});
}

std::shared_ptr<const WeightCasts::Cast> WeightCasts::find(const at::Tensor& tensor,
                                                           const c10::StorageImpl* weights) {
  if (current == nullptr || current->weights_ != weights) return nullptr;
  const auto found = current->known_.find(storage_of(tensor));
  if (found == current->known_.end()) return nullptr;
  const auto& version = tensor.unsafeGetTensorImpl()->version_counter();
  const bool same = version.enabled() && version.current_version() == found->second.version;
  return same ? found->second.cast : nullptr;
}

c10::Storage WeightCasts::Cast::again(c10::Storage storage) const {
  version.check(weight.sizes());
  const at::NoGradGuard no_grad;
  return weight.over(std::move(storage), version.counter()).to(dtype).storage();
}

}  // namespace spillway
