// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

#include <ATen/OpMathType.h>

// Batch norm in the steps between which several processes exchange their statistics
// (nn.SyncBatchNorm): mean and 1/sqrt(variance + eps) by channel, in the wide type of the input's.
namespace spillway::operators {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::toOpMathType(tensor.scalar_type()));
}

/// Per-channel numbers, to be broadcast over `input`'s other dimensions.
at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& input) {
  c10::SmallVector<int64_t, 5> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return wide(numbers).view(shape);
}

at::Tensor sum_by_channel(const at::Tensor& terms) {
  c10::SmallVector<int64_t, 5> others;
  for (int64_t i = 0; i < terms.dim(); ++i) {
    if (i != 1) others.push_back(i);
  }
  return terms.sum(others);
}

void stats(c10::Stack& s, const Draws&) {
  const at::Tensor input = s[0].toTensor();
  const double eps = s[1].toDouble();
  const at::Tensor x = wide(input).transpose(0, 1).flatten(1);
  const auto [variance, mean] = at::var_mean(x, /*dim=*/1, /*correction=*/0);
  set_results(s, mean, (variance + eps).rsqrt());
}

at::Tensor normalize(const c10::Stack& s) {
  const at::Tensor input = s[0].toTensor();
  at::Tensor made =
      (wide(input) - by_channel(s[3].toTensor(), input)) * by_channel(s[4].toTensor(), input);
  if (const auto weight = optional_tensor(s[1])) made = made * by_channel(*weight, input);
  if (const auto bias = optional_tensor(s[2])) made = made + by_channel(*bias, input);
  return at::empty_like(input).copy_(made);
}

void elemt(c10::Stack& s, const Draws&) {
  set_results(s, normalize(s));
}

void elemt_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[6].toTensor();
  set_results(s, out.resize_as_(s[0].toTensor()).copy_(normalize(s)));
}

/// Joins the statistics of several processes one after the other, as a GPU's one thread by channel
/// does, and moves the running ones towards them.
void gather(c10::Stack& s, const at::Tensor& counts) {
  const at::Tensor means = wide(s[1].toTensor());
  const at::Tensor deviations = wide(s[2].toTensor()).reciprocal();
  const double eps = s[6].toDouble();
  at::Tensor mean = at::zeros_like(means[0]);
  at::Tensor squares = at::zeros_like(mean);  // sum of squared distances from the mean
  double n = 0;
  for (int64_t i = 0; i < means.size(0); ++i) {
    const double count = counts[i].item<double>();
    const at::Tensor distance = mean - means[i];
    squares = squares + (deviations[i].square() - eps) * count +
              distance.square() * (n * count / (n + count));
    mean = mean * (n / (n + count)) + means[i] * (count / (n + count));
    n += count;
  }
  const double momentum = s[5].toDouble();
  const auto move = [&](const c10::IValue& running, const at::Tensor& towards) {
    if (const auto given = optional_tensor(running)) {
      given->copy_(wide(*given) * (1 - momentum) + towards * momentum);
    }
  };
  move(s[3], mean);
  move(s[4], squares / (n - 1));
  set_results(s, mean, (squares / n + eps).rsqrt());
}

void gather_stats(c10::Stack& s, const Draws&) {
  gather(s, at::full({s[1].toTensor().size(0)}, s[7].toInt(), at::kLong));
}

void gather_stats_with_counts(c10::Stack& s, const Draws&) {
  gather(s, s[7].toTensor());
}

void backward_reduce(c10::Stack& s, const Draws&) {
  const at::Tensor input = s[1].toTensor();
  const at::Tensor grad = wide(s[0].toTensor());
  const auto weight = optional_tensor(s[4]);
  const auto type = weight ? weight->scalar_type() : input.scalar_type();
  const at::Tensor sum = sum_by_channel(grad);
  const at::Tensor moment =
      sum_by_channel(grad * (wide(input) - by_channel(s[2].toTensor(), input)));
  at::Tensor grad_weight = (moment * wide(s[3].toTensor())).to(type);
  at::Tensor grad_bias = sum.to(type);
  if (!s[6].toBool()) grad_weight = at::Tensor();
  if (!s[7].toBool()) grad_bias = at::Tensor();
  const bool of_input = s[5].toBool();
  set_results(
      s, of_input ? sum : at::Tensor(), of_input ? moment : at::Tensor(), grad_weight, grad_bias);
}

void backward_elemt(c10::Stack& s, const Draws&) {
  const at::Tensor input = s[1].toTensor();
  const at::Tensor invstd = wide(s[3].toTensor());
  const double count = s[7].toTensor().sum().item<double>();
  const at::Tensor mean_grad = s[5].toTensor() / count;
  const at::Tensor slope = s[6].toTensor() / count * invstd.square();
  const auto weight = optional_tensor(s[4]);
  const at::Tensor scale = weight ? invstd * wide(*weight) : invstd;
  const at::Tensor centered = wide(input) - by_channel(s[2].toTensor(), input);
  const at::Tensor made =
      (wide(s[0].toTensor()) - by_channel(mean_grad, input) - centered * by_channel(slope, input)) *
      by_channel(scale, input);
  set_results(s, at::empty_like(input).copy_(made));
}

constexpr NamedBody kBatchNormBodies[] = {
    {"aten::batch_norm_stats", stats},
    {"aten::batch_norm_elemt", elemt},
    {"aten::batch_norm_elemt.out", elemt_out},
    {"aten::batch_norm_gather_stats", gather_stats},
    {"aten::batch_norm_gather_stats_with_counts", gather_stats_with_counts},
    {"aten::batch_norm_backward_reduce", backward_reduce},
    {"aten::batch_norm_backward_elemt", backward_elemt},
};

}  // namespace

c10::ArrayRef<NamedBody> batch_norm_bodies() {
  return kBatchNormBodies;
}

}  // namespace spillway::operators
