// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/rules.h"

#include "torch_glue/saved_tensors/pack_hook.h"

namespace spillway {

Rules::Rules() {
  add_activations(*this);
  add_arithmetic(*this);
  add_casts(*this);
  add_dropout(*this);
  add_normalizations(*this);
  add_poolings(*this);
  add_products(*this);
  add_views(*this);
}

const Rules& Rules::instance() {
  static const auto* const rules = new Rules;
  return *rules;
}

const Rules::Known* Rules::find(const torch::autograd::Node& node, std::uint32_t output) const {
  const auto found = output == 0 ? rules_.find(std::type_index(typeid(node))) : rules_.end();
  return found == rules_.end() ? nullptr : &found->second;
}

const torch::autograd::SavedVariable* Rules::saved_result(const torch::autograd::Node& node,
                                                          std::uint32_t output) const {
  const Known* const rule = find(node, output);
  return rule == nullptr || !rule->saved ? nullptr : rule->saved(node);
}

std::shared_ptr<const OperatorNote> note_of(const torch::autograd::SavedVariable& saved) {
  const auto* const ours = dynamic_cast<const PackHook*>(compat::hooks_of(saved));
  return ours != nullptr ? ours->note() : nullptr;
}

}  // namespace spillway
