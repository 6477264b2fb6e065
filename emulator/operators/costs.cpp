// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/costs.h"

#include "emulator/operators/traffic.h"

#include <ATen/Context.h>

#include <functional>
#include <numeric>

namespace spillway::operators {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

double product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1., std::multiplies<>());
}

/// (…, m, k) by (…, k, n).
double products(const at::Tensor& a, const at::Tensor& b) {
  return 2. * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

/// Query and key (batch, heads, length, width), value of another width; under a causal mask half of
/// the scores are left out.
double scores(const at::Tensor& query,
              const at::Tensor& key,
              const at::Tensor& value,
              bool causal) {
  const double pairs = product(query.sizes().slice(0, 3)) * static_cast<double>(key.size(2));
  const double width = static_cast<double>(query.size(3) + value.size(3));
  return 2. * pairs * width * (causal ? 0.5 : 1.);
}

/// For every element of the output: one multiplication and addition for each weight of its filter.
double filters(const at::Tensor& output, const at::Tensor& weight) {
  return 2. * static_cast<double>(output.numel()) * product(weight.sizes().slice(1));
}

using Kernel = Cost::Kernel;

struct Rule {
  std::string_view name;  // of the operator, without overload
  double (*flops)(Values arguments, Values results);
  Kernel kernel = Kernel::kProduct;
  bool is_convolution = false;
};

Cost::Arithmetic arithmetic_of(at::ScalarType type, bool is_convolution) {
  if (type == at::kDouble || type == at::kComplexDouble) return Cost::Arithmetic::kDouble;
  if (c10::isFloat8Type(type)) return Cost::Arithmetic::kFp8;
  if (c10::isIntegralType(type, true)) return Cost::Arithmetic::kInt8;
  if (type != at::kFloat && type != at::kComplexFloat) return Cost::Arithmetic::kHalf;
  const at::Context& context = at::globalContext();
  const bool shortened = is_convolution ? context.allowTF32CuDNN() : context.allowTF32CuBLAS();
  return shortened ? Cost::Arithmetic::kTf32 : Cost::Arithmetic::kSingle;
}

/// The type of the numbers: those of the first tensor.
at::ScalarType type_of(Values arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().scalar_type();
  }
  return at::kFloat;
}

double first_two(Values arguments, Values /*results*/) {
  return products(arguments[0].toTensor(), arguments[1].toTensor());
}

double second_two(Values arguments, Values /*results*/) {
  return products(arguments[1].toTensor(), arguments[2].toTensor());
}

/// `kCausal`: where the operator's argument is_causal stands.
template <size_t kCausal>
double attention_forward(Values arguments, Values /*results*/) {
  return scores(arguments[0].toTensor(),
                arguments[1].toTensor(),
                arguments[2].toTensor(),
                arguments[kCausal].toBool());
}

/// Five matrix products for the forward pass's two: the scores once more, and four gradients.
template <size_t kCausal>
double attention_backward(Values arguments, Values /*results*/) {
  return 2.5 * scores(arguments[1].toTensor(),
                      arguments[2].toTensor(),
                      arguments[3].toTensor(),
                      arguments[kCausal].toBool());
}

constexpr Rule kRules[] = {
    {"aten::mm", first_two},
    {"aten::bmm", first_two},
    {"aten::_scaled_mm", first_two},
    {"aten::_int_mm", first_two},
    {"aten::addmm", second_two},
    {"aten::baddbmm", second_two},
    {"aten::_addmm_activation", second_two},
    {"aten::convolution_backward",
     [](Values arguments, Values) {
       // To the input and to the weight: each costs what the forward pass did.
       return 2. * filters(arguments[0].toTensor(), arguments[2].toTensor());
     },
     Kernel::kProduct,
     true},
    {"aten::convolution",
     [](Values arguments, Values results) {
       return filters(results[0].toTensor(), arguments[1].toTensor());
     },
     Kernel::kProduct,
     true},
    {"aten::_scaled_dot_product_flash_attention_backward",
     attention_backward<11>,
     Kernel::kAttentionBackward},
    {"aten::_scaled_dot_product_efficient_attention_backward",
     attention_backward<11>,
     Kernel::kAttentionBackward},
    {"aten::_scaled_dot_product_cudnn_attention_backward",
     attention_backward<14>,
     Kernel::kAttentionBackward},
    {"aten::_scaled_dot_product_flash_attention", attention_forward<4>, Kernel::kAttention},
    {"aten::_scaled_dot_product_efficient_attention", attention_forward<6>, Kernel::kAttention},
    {"aten::_scaled_dot_product_cudnn_attention", attention_forward<6>, Kernel::kAttention},
};

}  // namespace

Cost cost_of(const char* name, Values arguments, Values results) {
  Cost cost{traffic_of(name, arguments, results)};
  std::string_view base = name;
  base = base.substr(0, base.find('.'));
  if (base.ends_with('_')) base.remove_suffix(1);  // in place
  for (const Rule& rule : kRules) {
    if (base != rule.name) continue;
    cost.flops = rule.flops(arguments, results);
    cost.kernel = rule.kernel;
    cost.arithmetic = arithmetic_of(type_of(arguments), rule.is_convolution);
    break;
  }
  return cost;
}

}  // namespace spillway::operators
