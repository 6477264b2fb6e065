// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/recipe.h"

#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/latest.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/rules.h"
#include "torch_glue/saved_tensors/saved_traces.h"

#include <ATen/ops/_to_copy.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace spillway {

namespace autograd = torch::autograd;

namespace {

/// A decomposed GELU saves its input some operators before it needs it again.
constexpr std::size_t kMaxResults = 32;

struct SavedResult {
  std::uint32_t output;
  PackHook::Trace trace;
};

thread_local Latest<SavedResult, kMaxResults> results;

/// A handle of the result behind the edge at `version`; null if none is known or it has changed.
Recipe::Handle result_elsewhere(const autograd::Edge& edge, std::uint32_t version) {
  Recipe::Handle handle;
  static_cast<void>(results.find(*edge.function, [&](const SavedResult& saved) {
    if (saved.output == edge.input_nr) handle = PackHook::of_trace(saved.trace, version);
    return handle != nullptr;
  }));
  return handle;
}

}  // namespace

void note_result(const at::Tensor& tensor, const PackHook& packed) {
  const auto& node = tensor.grad_fn();
  auto trace = node != nullptr ? packed.trace() : std::nullopt;
  if (!trace) return;
  results.add(node, {static_cast<std::uint32_t>(tensor.output_nr()), std::move(*trace)});
}

std::unique_ptr<Recipe> Recipe::of(const autograd::Node& node,
                                   std::uint32_t output,
                                   const RegionOptions& region,
                                   int depth,
                                   bool expensive) {
  expensive = expensive && region.budget;
  const Rules::Known* const rule = Rules::instance().find(node, output);
  if (rule == nullptr || (rule->expensive && !expensive)) {
    const auto call = call_of(node);
    return call != nullptr ? of_call(*call, output, region, depth, expensive) : nullptr;
  }
  // A running node holds its lock: it saves a result of its own if its pass is recorded.
  const std::unique_lock<std::mutex> lock(compat::mutex_of(node), std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  std::unique_ptr<Recipe> recipe(new Recipe(&region, depth, expensive));
  recipe->made_by_ = &typeid(node);
  if (rule->expensive) recipe->own_ = kExpensive;
  rule->write(node, *recipe);
  return recipe->is_whole() ? std::move(recipe) : nullptr;
}

std::unique_ptr<Recipe> Recipe::of_call(const OperatorCall& call,
                                        std::uint32_t output,
                                        const RegionOptions& region,
                                        int depth,
                                        bool expensive) {
  const RepeatedKind& kind = call.repeated->kind();
  expensive = expensive && region.budget;
  if (kind.is(RepeatedKind::kExpensive) && !expensive) return nullptr;
  std::unique_ptr<Recipe> recipe(new Recipe(&region, depth, expensive));
  if (kind.is(RepeatedKind::kExpensive)) recipe->own_ = kExpensive;
  if (kind.is(RepeatedKind::kView)) recipe->is_view();
  for (const PassedTensor& operand : call.operands)
    recipe->needs_passed(operand);
  recipe->computed_by([repeated = call.repeated, output](Values values) {
    return repeated->repeat(values, output);
  });
  recipe->made_by_call_ = kind.name;
  return recipe->is_whole() ? std::move(recipe) : nullptr;
}

bool Recipe::is_whole() const {
  const int longest = region_->budget ? kLongestPlanned : kLongestChain;
  return possible_ && function_ && chain_.length < longest;
}

RecomputeChain Recipe::chain(Bytes size) const {
  const bool first = chain_.length == 0;
  return {chain_.length + own_, first ? size : std::min(size, chain_.narrowest)};
}

bool Recipe::should_end(Bytes size) const {
  // Without a chain there may be no region.
  return chain_.length >= kLongPlanned && region_->budget && size <= chain_.narrowest;
}

std::unique_ptr<Recipe> Recipe::of_nothing(Function function) {
  std::unique_ptr<Recipe> recipe(new Recipe(nullptr, 0, false));
  recipe->computed_by(std::move(function));
  return recipe;
}

bool Recipe::take(const autograd::SavedVariable& saved) {
  if (auto* const hooks = compat::hooks_of(saved)) {
    auto* const ours = dynamic_cast<PackHook*>(hooks);
    return take(ours != nullptr && !ours->changed() ? ours->share() : nullptr);
  }
  const auto kept = saved.get_raw_data();
  if (!kept || !kept->defined()) return false;
  return take(PackHook::of_kept(*kept, compat::version_of(saved)));
}

bool Recipe::take(Handle handle) {
  if (handle == nullptr || !handle->available()) return false;
  chain_.join(handle->chain());
  values_.push_back({std::move(handle), nullptr});
  return true;
}

bool Recipe::take_cast(Handle handle, at::ScalarType type) {
  std::unique_ptr<Recipe> recipe(new Recipe(region_, depth_ + 1, expensive_));
  if (!recipe->take(std::move(handle))) return false;
  recipe->computed_by([type](Values values) { return at::_to_copy(values[0], type); });
  chain_.join(recipe->chain_);
  values_.push_back({nullptr, std::move(recipe)});
  return true;
}

void Recipe::needs(const autograd::SavedVariable& saved) {
  if (possible_ && !take(saved)) possible_ = false;
}

void Recipe::needs_operand(const autograd::Node& node,
                           const autograd::SavedVariable& saved,
                           std::uint32_t edge,
                           std::uint32_t OperandVersions::*version) {
  if (!compat::never_saved(saved)) return needs(saved);
  const auto versions = versions_of_operands(node);
  if (!versions) return reject();
  needs_result(node.next_edge(edge), (*versions).*version);
}

void Recipe::needs_result(const autograd::Edge& edge, std::uint32_t version) {
  if (!possible_) return;
  possible_ = false;
  if (edge.function == nullptr || depth_ >= kDeepest) return;
  if (const auto* leaf = dynamic_cast<const autograd::AccumulateGrad*>(edge.function.get())) {
    possible_ = !is_wrapper(leaf->variable);
    return needs_kept(leaf->variable, version);  // the graph keeps it anyway
  }
  const autograd::SavedVariable* const saved =
      Rules::instance().saved_result(*edge.function, edge.input_nr);
  if (saved != nullptr) {
    const std::unique_lock<std::mutex> lock(compat::mutex_of(*edge.function), std::try_to_lock);
    possible_ = lock.owns_lock() && take(*saved);  // which checks for changes
    return;
  }
  if (region_->budget) {
    if (auto [handle, cast] = SavedTraces::of_thread().find(edge, version); handle != nullptr) {
      possible_ = cast ? take_cast(std::move(handle), *cast) : take(std::move(handle));
      return;
    }
  } else if (Handle handle = result_elsewhere(edge, version)) {
    possible_ = take(std::move(handle));
    return;
  }
  if (version != version_of_result(*edge.function, edge.input_nr)) return;
  auto recipe = of(*edge.function, edge.input_nr, *region_, depth_ + 1, expensive_);
  if (recipe == nullptr) return;
  possible_ = true;
  const RecomputeChain& inner = recipe->chain_;  // a cheap result takes no memory for long
  chain_.join({inner.length + recipe->own_ - 1, inner.narrowest});
  save_substitute_ = save_substitute_ || recipe->save_substitute_;
  substitutes_.insert(substitutes_.end(), recipe->substitutes_.begin(), recipe->substitutes_.end());
  values_.push_back({nullptr, std::move(recipe)});
}

void Recipe::needs_kept(const at::Tensor& tensor, std::uint32_t version) {
  if (!possible_) return;
  possible_ = take(PackHook::of_kept(tensor, version));
}

void Recipe::needs_passed(const PassedTensor& operand) {
  if (!possible_) return;
  if (!operand.defined()) {
    values_.push_back({});
    return;
  }
  if (Handle handle = SavedTraces::of_thread().find(operand); take(std::move(handle))) return;
  if (const compat::NodePtr node = operand.node.lock()) {
    return needs_result({node, operand.output}, operand.version.number());
  }
  const at::Tensor tensor(operand.tensor.lock());
  if (!tensor.defined()) return reject();
  needs_kept(tensor, operand.version.number());
}

void Recipe::needs_substitute(const at::Tensor& tensor) {
  if (!possible_) return;
  save_substitute_ = true;
  auto handle = make_pooled<PackHook>(region_);
  handle->call_pack_hook(tensor);
  if (auto decided = handle->decided()) substitutes_.push_back(std::move(decided));
  // The result counts as the substituted tensor, because the steps in between compute hardly
  // anything.
  RecomputeChain chain = handle->chain();
  --chain.length;
  if (values_.empty()) {
    chain_ = chain;
  } else {
    chain_.join(chain);
  }
  values_.push_back({std::move(handle), nullptr});
}

void Recipe::optional_input(const autograd::SavedVariable& saved) {
  if (!possible_) return;
  if (compat::never_saved(saved)) {
    values_.push_back({});
  } else {
    needs(saved);
  }
}

void Recipe::optional_input(Handle noted) {
  if (!possible_) return;
  if (noted == nullptr) {
    values_.push_back({});
  } else {
    possible_ = take(std::move(noted));
  }
}

bool Recipe::available() const {
  return std::all_of(values_.begin(), values_.end(), [](const Value& value) {
    if (value.recipe != nullptr) return value.recipe->available();
    return value.handle == nullptr || value.handle->available();
  });
}

std::string Recipe::made_by() const {
  if (made_by_call_ != nullptr) return made_by_call_;
  if (made_by_ == nullptr) return "an operator";
  const std::string name = c10::demangle(made_by_->name());
  return name.substr(name.rfind(':') + 1);
}

at::Tensor Recipe::run() const {
  c10::SmallVector<at::Tensor, 4> values;
  for (const Value& value : values_) {
    if (value.recipe != nullptr) {
      values.push_back(value.recipe->run());
    } else {
      values.push_back(value.handle != nullptr ? value.handle->unpack() : at::Tensor());
    }
    const at::Tensor& latest = values.back();
    TORCH_CHECK(!latest.has_storage() || latest.numel() == 0 || latest.storage().nbytes() != 0,
                "the memory of a tensor of shape ",
                latest.sizes(),
                " has been freed since the forward pass");
  }
  return function_(values);
}

}  // namespace spillway
