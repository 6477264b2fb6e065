// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/costs.h"

#include "emulator/operators/layouts.h"
#include "emulator/operators/lists.h"
#include "emulator/operators/shapes/cudnn_recurrent.h"

#include <ATen/Context.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

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

/// The same for (batch, length, heads, width), and for sequences one behind the other, which are
/// assumed to be alike: `ends` is their number.
double rows_of_scores(const at::Tensor& query,
                      const at::Tensor& key,
                      const at::Tensor& value,
                      const c10::IValue& ends,
                      bool causal) {
  const auto heads = static_cast<double>(query.size(-2));
  const auto tokens = [](const at::Tensor& of) {
    return static_cast<double>(of.numel()) / static_cast<double>(of.size(-1) * of.size(-2));
  };
  const auto sequences = static_cast<double>(ends.isTensor() && ends.toTensor().defined()
                                                 ? std::max<int64_t>(1, ends.toTensor().numel() - 1)
                                                 : query.size(0));
  const double pairs = heads * tokens(query) * tokens(key) / sequences;
  const auto width = static_cast<double>(query.size(-1) + value.size(-1));
  return 2. * pairs * width * (causal ? 0.5 : 1.);
}

/// Where a filter is put, all of its weights are multiplied and added: at every position of the
/// output, of a transposed convolution at every position of the input.
double filters(const at::Tensor& input,
               const at::Tensor& output,
               const at::Tensor& weight,
               bool transposed) {
  const at::Tensor& positions = transposed ? input : output;
  const double count = static_cast<double>(positions.size(0)) * product(positions.sizes().slice(2));
  return 2. * count * static_cast<double>(weight.numel());
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

/// Rows of many matrices, or columns, by one for each group of them; or parts of what is summed
/// over.
double groups(Values arguments, Values /*results*/) {
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const bool of_columns = a.dim() == 3 && b.dim() == 2;
  return products(a, b) / (of_columns ? static_cast<double>(a.size(0)) : 1.);
}

double convolution(Values arguments, Values results) {
  return filters(arguments[0].toTensor(),
                 results[0].toTensor(),
                 arguments[1].toTensor(),
                 arguments[6].toBool());
}

/// To the input and to the weight, each where requested: as much as the forward pass did.
double convolution_backward(Values arguments, Values /*results*/) {
  const auto wanted = arguments[10].toBoolList();
  const double once = filters(arguments[1].toTensor(),
                              arguments[0].toTensor(),
                              arguments[2].toTensor(),
                              arguments[7].toBool());
  return once * ((wanted.get(0) ? 1. : 0.) + (wanted.get(1) ? 1. : 0.));
}

/// `kFirst`: index of the query; key and value follow it.
template <size_t kFirst, size_t kEnds, size_t kCausal>
double packed_attention(Values arguments, Values /*results*/) {
  return (kFirst == 0 ? 1. : 2.5) * rows_of_scores(arguments[kFirst].toTensor(),
                                                   arguments[kFirst + 1].toTensor(),
                                                   arguments[kFirst + 2].toTensor(),
                                                   arguments[kEnds],
                                                   arguments[kCausal].isBool()
                                                       ? arguments[kCausal].toBool()
                                                       : arguments[kCausal].toInt() != 0);
}

/// `kCausal`: index of the argument is_causal.
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

double recurrent(Values arguments, Values /*results*/) {
  return cudnn_recurrent_flops(arguments);
}

double recurrent_backward(Values arguments, Values /*results*/) {
  return cudnn_recurrent_backward_flops(arguments);
}

constexpr Rule kRules[] = {
    {"aten::mm", first_two},
    {"aten::bmm", first_two},
    {"aten::_scaled_mm", first_two},
    {"aten::_int_mm", first_two},
    {"aten::addmm", second_two},
    {"aten::baddbmm", second_two},
    {"aten::_addmm_activation", second_two},
    {"aten::addbmm", second_two},
    {"aten::_grouped_mm", groups},
    {"aten::_scaled_grouped_mm", groups},
    {"aten::_scaled_grouped_mm_v2", groups},
    {"aten::_cudnn_rnn", recurrent, Kernel::kProduct, true},
    {"aten::_cudnn_rnn_backward", recurrent_backward, Kernel::kProduct, true},
    {"aten::convolution_backward", convolution_backward, Kernel::kProduct, true},
    {"aten::convolution", convolution, Kernel::kProduct, true},
    {"aten::_flash_attention_forward", packed_attention<0, 3, 8>, Kernel::kAttention},
    {"aten::_flash_attention_backward", packed_attention<1, 6, 11>, Kernel::kAttentionBackward},
    {"aten::_efficient_attention_forward", packed_attention<0, 4, 9>, Kernel::kAttention},
    {"aten::_efficient_attention_backward", packed_attention<1, 6, 14>, Kernel::kAttentionBackward},
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

namespace {

using Values = c10::ArrayRef<c10::IValue>;

constexpr std::string_view kFilling[] = {"aten::zero_",
                                         "aten::fill_",
                                         "aten::normal_",
                                         "aten::uniform_",
                                         "aten::random_",
                                         "aten::exponential_"};

/// Their first argument is read at indices.
constexpr std::string_view kPicking[] = {
    "aten::index", "aten::index_select", "aten::gather", "aten::take", "aten::embedding"};

/// Their first argument is written at indices, in place.
constexpr std::string_view kPutting[] = {"aten::index_put_",
                                         "aten::_index_put_impl_",
                                         "aten::index_add_",
                                         "aten::index_copy_",
                                         "aten::scatter_",
                                         "aten::scatter_add_"};

template <size_t kCount>
bool contains(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// From the first to the last byte, or fewer where there are gaps.
uint64_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return tensor.nbytes();
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return std::min<uint64_t>(tensor.nbytes(), (static_cast<uint64_t>(last) + 1) * tensor.itemsize());
}

/// Tensors, each once.
class Sum {
 public:
  explicit Sum(const char* name) : name_(name) {}

  void add(Values values) {
    for (const c10::IValue& value : values) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        for_each_part(tensor, name_, [&](const at::Tensor& part) {
          if (part.defined() && part.is_cuda()) add(part);
        });
      });
    }
  }

  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  [[nodiscard]] uint64_t largest() const { return largest_; }

 private:
  struct Seen {
    const void* at;
    uint64_t bytes;
    bool operator==(const Seen&) const = default;
  };

  void add(const at::Tensor& tensor) {
    const uint64_t bytes = extent(tensor);
    const Seen seen{tensor.has_storage() ? tensor.const_data_ptr() : nullptr, bytes};
    if (seen.at != nullptr && std::find(seen_.begin(), seen_.end(), seen) != seen_.end()) return;
    seen_.push_back(seen);
    bytes_ += bytes;
    largest_ = std::max(largest_, bytes);
  }

  const char* name_;
  std::vector<Seen> seen_;
  uint64_t bytes_ = 0;
  uint64_t largest_ = 0;
};

}  // namespace

uint64_t traffic_of(const char* name, Values arguments, Values results) {
  const std::string_view full = name;
  const std::string_view base = full.substr(0, full.find('.'));
  Sum read(name);
  Sum written(name);
  written.add(results);
  if (contains(kFilling, base)) return written.bytes();
  if (contains(kPicking, base)) {
    read.add(arguments.slice(1));
    return read.bytes() + 2 * written.bytes();
  }
  if (contains(kPutting, base)) {
    read.add(arguments.slice(1));
    return read.bytes() + 2 * read.largest();
  }
  read.add(arguments);
  return read.bytes() + written.bytes();
}

}  // namespace spillway::operators
