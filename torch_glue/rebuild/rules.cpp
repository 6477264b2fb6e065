// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/rules.h"

#include "torch_glue/saved_tensors/pack_hook.h"

namespace spillway {

Rules::Rules() {
  add_activations(*this);
  add_arithmetic(*this);
  add_normalizations(*this);
  add_poolings(*this);
}

const Rules& Rules::instance() {
  static const auto* const rules = new Rules;
  return *rules;
}

const Rule* Rules::find(const torch::autograd::Node& node, std::uint32_t output) const {
  const auto found = rules_.find({std::type_index(typeid(node)), output});
  return found == rules_.end() ? nullptr : &found->second;
}

const torch::autograd::SavedVariable* Rules::saved_result(const torch::autograd::Node& node,
                                                          std::uint32_t output) const {
  const auto found = saved_.find({std::type_index(typeid(node)), output});
  return found == saved_.end() ? nullptr : found->second(node);
}

std::shared_ptr<const OperatorNote> note_of(const torch::autograd::SavedVariable& saved) {
  const auto* const ours = dynamic_cast<const PackHook*>(compat::hooks_of(saved));
  return ours != nullptr ? ours->note() : nullptr;
}

}  // namespace spillway
