// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/shape_rules.h"

#include "emulator/operators/bodies/bodies.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/runtime.h"
#include "emulator/operators/shapes/cudnn_recurrent.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>

namespace spillway::operators {
namespace {

/// Some Meta kernels are Python code: the program's modes must not observe their operators.
class InternalOpsGuard {
 public:
  InternalOpsGuard()
      : torch_function_(at::impl::PythonTorchFunctionTLS::get_disabled_state()),
        below_(
            c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
            c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})),
        unobserved_(false) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(
        at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }

  InternalOpsGuard(const InternalOpsGuard&) = delete;
  InternalOpsGuard& operator=(const InternalOpsGuard&) = delete;

  ~InternalOpsGuard() { at::impl::PythonTorchFunctionTLS::set_disabled_state(torch_function_); }

 private:
  at::impl::TorchFunctionDisabledState torch_function_;
  c10::impl::ExcludeDispatchKeyGuard below_;
  at::RecordFunctionGuard unobserved_;
};

at::TensorOptions meta(at::ScalarType type) {
  return at::TensorOptions(type).device(at::kMeta);
}

/// This share of `elements`, rounded up, because a single existing one may be needed.
int64_t share_of(int64_t elements, double share) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(elements) * share));
}

int64_t selected(int64_t elements) {
  return share_of(elements, emulated_runtime().assumed.nonzero);
}

void nonzero(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const at::Tensor self = stack[0].toTensor();
  stack = {at::empty({selected(self.numel()), self.dim()}, meta(at::kLong))};
}

void masked_select(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const at::Tensor self = stack[0].toTensor();
  const auto both = at::infer_size(self.sizes(), stack[1].toTensor().sizes());
  const int64_t elements = selected(c10::multiply_integers(both));
  stack = {at::empty({elements}, meta(self.scalar_type()))};
}

void equal(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  stack = {true};
}

/// A mask is an index for each of its dimensions, as long as it selects elements.
void index(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  c10::List<std::optional<at::Tensor>> indices;
  for (const c10::IValue& value : stack[1].toListRef()) {
    if (value.isNone() || !is_mask(value.toTensor())) {
      indices.push_back(value.isNone() ? std::nullopt
                                       : std::optional<at::Tensor>(value.toTensor()));
      continue;
    }
    const at::Tensor mask = value.toTensor();
    for (int64_t i = 0; i < mask.dim(); ++i)
      indices.push_back(at::empty({selected(mask.numel())}, meta(at::kLong)));
  }
  stack = {at::index(stack[0].toTensor(), indices)};
}

/// Of all elements, or of the slices along a dimension.
struct Unique {
  at::Tensor self;
  std::optional<int64_t> dimension;
  bool inverse;
  bool counts;

  /// The values, for each element the index of its value, for each value how often it is there.
  [[nodiscard]] c10::Stack results() const {
    const int64_t elements = dimension ? self.size(*dimension) : self.numel();
    const int64_t found = share_of(elements, emulated_runtime().assumed.unique);
    std::vector<int64_t> values{found};
    std::vector<int64_t> indices = self.sizes().vec();
    if (dimension) {
      values = self.sizes().vec();
      values[static_cast<size_t>(at::maybe_wrap_dim(*dimension, self.dim()))] = found;
      indices = {elements};
    }
    if (!inverse) indices = {0};
    return {at::empty(values, self.options()),
            at::empty(indices, meta(at::kLong)),
            at::empty({counts ? found : 0}, meta(at::kLong))};
  }
};

void unique(const c10::OperatorHandle& /*op*/, c10::Stack& s) {
  s = Unique{s[0].toTensor(), {}, s[2].toBool(), s[3].toBool()}.results();
}

void unique_dim(const c10::OperatorHandle& /*op*/, c10::Stack& s) {
  s = Unique{s[0].toTensor(), s[1].toInt(), s[3].toBool(), s[4].toBool()}.results();
}

void unique_consecutive(const c10::OperatorHandle& /*op*/, c10::Stack& s) {
  s = Unique{s[0].toTensor(), s[3].toOptional<int64_t>(), s[1].toBool(), s[2].toBool()}.results();
}

void unique_dim_consecutive(const c10::OperatorHandle& /*op*/, c10::Stack& s) {
  s = Unique{s[0].toTensor(), s[1].toInt(), s[2].toBool(), s[3].toBool()}.results();
}

void by_meta_kernel(const c10::OperatorHandle& op, c10::Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

/// The Meta kernel of convolutions ignores the channels-last format.
void keep_format(c10::Stack& results, at::MemoryFormat format) {
  for (c10::IValue& result : results) {
    const at::Tensor& made = result.toTensor();
    const bool as_input = made.defined() && (made.dim() == 4 || made.dim() == 5);
    if (as_input) result = at::empty(made.sizes(), made.options(), format);
  }
}

/// Channels-last if one of the two is.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

void convolution(const c10::OperatorHandle& op, c10::Stack& stack) {
  const at::MemoryFormat format = format_of(stack[0].toTensor(), stack[1].toTensor());
  by_meta_kernel(op, stack);
  keep_format(stack, format);
}

void convolution_backward(const c10::OperatorHandle& op, c10::Stack& stack) {
  const at::MemoryFormat format = format_of(stack[1].toTensor(), stack[2].toTensor());
  by_meta_kernel(op, stack);
  keep_format(stack, format);
}

/// These reduce in place what they have made for every element: that is what stays.
void loss(const c10::OperatorHandle& op, c10::Stack& stack) {
  const auto each = at::infer_size(stack[0].toTensor().sizes(), stack[1].toTensor().sizes());
  by_meta_kernel(op, stack);
  const at::Tensor made = stack[0].toTensor();
  if (made.dim() == 0) stack = {at::empty(each, made.options()).as_strided({}, {})};
}

/// Small repeats have been computed, and so has their sum.
void repeat_interleave(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const at::Tensor repeats = stack[0].toTensor();
  const auto size = stack[1].toOptional<int64_t>();
  TORCH_CHECK_NOT_IMPLEMENTED(
      size || repeats.storage().nbytes() <= kSmallBytes,
      "aten::repeat_interleave.Tensor: its size is the sum of ",
      repeats.numel(),
      " values that a dry run does not compute. Give it output_size, or use "
      "spillway emulate.");
  stack = {at::empty({size.value_or(0)}, repeats.options())};
}

/// As many bins as are asked for; no more, however large the values might be.
void bincount(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const int64_t bins = stack[2].toInt();
  const auto weights = stack[1].toOptional<at::Tensor>();
  const auto type = !weights || !weights->defined()        ? at::kLong
                    : weights->scalar_type() == at::kFloat ? at::kFloat
                                                           : at::kDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(bins > 0 || stack[0].toTensor().storage().nbytes() <= kSmallBytes,
                              "aten::bincount: its size is the largest of the values, which a dry "
                              "run does not compute. Give it minlength, or use spillway emulate.");
  stack = {at::empty({bins}, meta(type))};
}

void like_first(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  stack = {at::empty_like(stack[0].toTensor(), at::MemoryFormat::Contiguous)};
}

/// The new state, and for the backward pass five values for each of its elements.
void gru_cell(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const at::Tensor state = stack[2].toTensor();
  stack = {at::empty_like(state, at::MemoryFormat::Contiguous),
           at::empty({state.size(0), 5 * state.size(1)}, state.options())};
}

void gru_cell_backward(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const at::Tensor gradient = stack[0].toTensor();
  const at::Tensor kept = stack[1].toTensor();
  const int64_t gates = kept.size(1) / 5 * 3;
  const at::Tensor bias = stack[2].toBool() ? at::empty({gates}, kept.options()) : at::Tensor{};
  const auto of_gates = [&] {
    return at::empty({kept.size(0), gates}, kept.options());
  };
  const at::Tensor other = bias.defined() ? at::empty_like(bias) : at::Tensor{};
  stack = {
      of_gates(), of_gates(), at::empty_like(gradient, at::MemoryFormat::Contiguous), bias, other};
}

/// Products whose result has a type of its own. PyTorch's Meta kernels are missing for some
/// overloads and read `out_dtype` as `beta` for others, so the body is applied to the Meta tensors.
void typed_product(const c10::OperatorHandle& op, c10::Stack& stack) {
  find_body(c10::toString(op.operator_name()))->body(stack, Draws(std::nullopt, 0));
}

bool is_typed_product(std::string_view name) {
  const auto products = matmul_bodies();
  return std::any_of(products.begin(), products.end(), [&](const NamedBody& product) {
    return product.name == name;
  });
}

struct SpecialRule {
  std::string_view name;
  void (*rule)(const c10::OperatorHandle& op, c10::Stack& stack);
  bool assumes_unique = false;
};

constexpr SpecialRule kSpecial[] = {
    {"aten::_convolution", convolution},
    {"aten::_cudnn_rnn", cudnn_recurrent},
    {"aten::_cudnn_rnn_backward", cudnn_recurrent_backward},
    {"aten::_logcumsumexp", like_first},
    {"aten::_thnn_fused_gru_cell", gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
    {"aten::bincount", bincount},
    {"aten::convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::equal", equal},
    {"aten::index.Tensor", index},
    {"aten::masked_select", masked_select},
    {"aten::_unique2", unique, true},
    {"aten::binary_cross_entropy", loss},
    {"aten::mse_loss", loss},
    {"aten::nonzero", nonzero},
    {"aten::repeat_interleave.Tensor", repeat_interleave},
    {"aten::smooth_l1_loss", loss},
    {"aten::unique_consecutive", unique_consecutive, true},
    {"aten::unique_dim", unique_dim, true},
    {"aten::unique_dim_consecutive", unique_dim_consecutive, true},
};

/// In place, with shapes that stay; PyTorch's Meta kernels for these are missing or take long.
bool keeps_shapes(const c10::OperatorHandle& op, std::string_view base) {
  if (base == "aten::_cummax_helper" || base == "aten::_cummin_helper") return true;
  if (!base.ends_with('_') || base.ends_with("__")) return false;
  return op.hasTag(at::Tag::nondeterministic_seeded) || base.starts_with("aten::_foreach_") ||
         base.starts_with("aten::_fused_") || base.starts_with("aten::_amp_") ||
         base.starts_with("aten::masked_") || base.starts_with("aten::index_put") ||
         base == "aten::copy_" || base == "aten::_index_put_impl_";
}

}  // namespace

ShapeRule::Special ShapeRule::special_of(std::string_view name) {
  for (const SpecialRule& known : kSpecial) {
    const bool assumed = !known.assumes_unique || emulated_runtime().assumed.unique >= 0;
    if (known.name == name && assumed) return known.rule;
  }
  return is_typed_product(name) ? typed_product : nullptr;
}

ShapeRule::Kind ShapeRule::kind_of(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  const std::string base = op.schema().name();
  if (keeps_shapes(op, base)) return Kind::kArguments;
  const bool known = op.hasKernelForDispatchKey(DispatchKey::Meta) ||
                     op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
                     op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (known) return Kind::kMeta;
  return base.ends_with('_') && !base.ends_with("__") ? Kind::kArguments : Kind::kNone;
}

ShapeRule::ShapeRule(const c10::OperatorHandle& op)
    : types_(op), kind_(kind_of(op)), special_(special_of(c10::toString(op.operator_name()))) {
  if (special_ != nullptr) kind_ = Kind::kSpecial;
  if (kind_ != Kind::kArguments) return;
  const auto& arguments = op.schema().arguments();
  for (const c10::Argument& result : op.schema().returns()) {
    const auto same = std::find_if(arguments.begin(), arguments.end(), [&](const auto& argument) {
      return argument.alias_info() != nullptr && result.alias_info() != nullptr &&
             *argument.alias_info() == *result.alias_info();
    });
    if (same == arguments.end()) kind_ = Kind::kNone;
    returned_.push_back(static_cast<size_t>(same - arguments.begin()));
  }
}

bool ShapeRule::apply(const c10::OperatorHandle& op, c10::Stack& stack) const {
  if (kind_ == Kind::kNone) return false;
  types_.check(op, stack);
  if (kind_ == Kind::kArguments) {
    c10::Stack results;
    for (const size_t at : returned_)
      results.push_back(stack[at]);
    stack = std::move(results);
    return true;
  }
  const InternalOpsGuard unseen;
  (kind_ == Kind::kSpecial ? special_ : by_meta_kernel)(op, stack);
  return true;
}

std::string_view assumption_for(std::string_view name) {
  for (const SpecialRule& known : kSpecial) {
    if (known.assumes_unique && known.name == name) return "unique=SHARE";
  }
  return {};
}

}  // namespace spillway::operators
