// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

// cuDNN's operators, called by name, and the depthwise convolutions: PyTorch has device-independent
// ones of the same meaning.
namespace spillway::operators {
namespace {

using Numbers = std::vector<int64_t>;

Numbers numbers(const c10::IValue& value) {
  return value.toIntVector();
}

/// What is saved for cuDNN's backward pass; the CPU's needs none.
at::Tensor no_reserve() {
  return at::empty({0}, at::kByte);
}

struct Arguments {
  size_t stride;
  size_t padding;
  size_t dilation;
  size_t groups;
};

at::Tensor convolve(const c10::Stack& s, const std::optional<at::Tensor>& bias, Arguments at) {
  return at::convolution(s[0].toTensor(),
                         s[1].toTensor(),
                         bias,
                         numbers(s[at.stride]),
                         numbers(s[at.padding]),
                         numbers(s[at.dilation]),
                         /*transposed=*/false,
                         Numbers(numbers(s[at.stride]).size(), 0),
                         s[at.groups].toInt());
}

constexpr Arguments kPlain = {.stride = 3, .padding = 2, .dilation = 4, .groups = 5};

void convolution(c10::Stack& s, const Draws&) {
  set_results(s, convolve(s, {}, kPlain));
}

void convolution_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[9].toTensor();
  const at::Tensor made = convolve(s, {}, kPlain);
  set_results(s, out.resize_as_(made).copy_(made));
}

void convolution_transpose(c10::Stack& s, const Draws&) {
  set_results(s,
              at::convolution(s[0].toTensor(),
                              s[1].toTensor(),
                              {},
                              numbers(s[4]),
                              numbers(s[2]),
                              numbers(s[5]),
                              /*transposed=*/true,
                              numbers(s[3]),
                              s[6].toInt()));
}

void convolution_relu(c10::Stack& s, const Draws&) {
  constexpr Arguments kIndices = {.stride = 3, .padding = 4, .dilation = 5, .groups = 6};
  set_results(s, convolve(s, optional_tensor(s[2]), kIndices).relu_());
}

void convolution_add_relu(c10::Stack& s, const Draws&) {
  constexpr Arguments kIndices = {.stride = 5, .padding = 6, .dilation = 7, .groups = 8};
  at::Tensor made = convolve(s, optional_tensor(s[4]), kIndices);
  made.add_(s[2].toTensor(), s[3].isNone() ? at::Scalar(1) : s[3].toScalar());
  set_results(s, made.relu_());
}

at::Tensor depthwise(const c10::Stack& s) {
  const Numbers stride = numbers(s[4]);
  return at::convolution(s[0].toTensor(),
                         s[1].toTensor(),
                         optional_tensor(s[3]),
                         stride,
                         numbers(s[5]),
                         numbers(s[6]),
                         /*transposed=*/false,
                         Numbers(stride.size(), 0),
                         /*groups=*/s[0].toTensor().size(1));
}

void conv_depthwise(c10::Stack& s, const Draws&) {
  set_results(s, depthwise(s));
}

void conv_depthwise_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[7].toTensor();
  const at::Tensor made = depthwise(s);
  set_results(s, out.resize_as_(made).copy_(made));
}

void batch_norm(c10::Stack& s, const Draws&) {
  auto [output, mean, invstd] = at::native_batch_norm(s[0].toTensor(),
                                                      optional_tensor(s[1]),
                                                      optional_tensor(s[2]),
                                                      optional_tensor(s[3]),
                                                      optional_tensor(s[4]),
                                                      s[5].toBool(),
                                                      s[6].toDouble(),
                                                      s[7].toDouble());
  set_results(s, output, mean, invstd, no_reserve());
}

void batch_norm_backward(c10::Stack& s, const Draws&) {
  auto [input, weight, bias] = at::native_batch_norm_backward(s[1].toTensor(),
                                                              s[0].toTensor(),
                                                              optional_tensor(s[2]),
                                                              optional_tensor(s[3]),
                                                              optional_tensor(s[4]),
                                                              optional_tensor(s[5]),
                                                              optional_tensor(s[6]),
                                                              /*train=*/true,
                                                              s[7].toDouble(),
                                                              {true, true, true});
  set_results(s, input, weight, bias);
}

constexpr int64_t kBilinear = 0;
constexpr int64_t kZeros = 0;

void grid_sampler(c10::Stack& s, const Draws&) {
  set_results(s, at::grid_sampler_2d(s[0].toTensor(), s[1].toTensor(), kBilinear, kZeros, true));
}

void grid_sampler_backward(c10::Stack& s, const Draws&) {
  auto [input, grid] = at::grid_sampler_2d_backward(
      s[2].toTensor(), s[0].toTensor(), s[1].toTensor(), kBilinear, kZeros, true, {true, true});
  set_results(s, input, grid);
}

Numbers image_shape(const c10::Stack& s) {
  return {s[1].toInt(), s[2].toInt(), s[3].toInt(), s[4].toInt()};
}

void affine_grid(c10::Stack& s, const Draws&) {
  set_results(s, at::affine_grid_generator(s[0].toTensor(), image_shape(s), true));
}

void affine_grid_backward(c10::Stack& s, const Draws&) {
  set_results(s, at::affine_grid_generator_backward(s[0].toTensor(), image_shape(s), true));
}

constexpr NamedBody kCudnnBodies[] = {
    {"aten::_conv_depthwise2d", conv_depthwise},
    {"aten::_conv_depthwise2d.out", conv_depthwise_out},
    {"aten::conv_depthwise3d", conv_depthwise},
    {"aten::cudnn_affine_grid_generator", affine_grid},
    {"aten::cudnn_affine_grid_generator_backward", affine_grid_backward},
    {"aten::cudnn_batch_norm", batch_norm},
    {"aten::cudnn_batch_norm_backward", batch_norm_backward},
    {"aten::cudnn_convolution", convolution},
    {"aten::cudnn_convolution.out", convolution_out},
    {"aten::cudnn_convolution_add_relu", convolution_add_relu},
    {"aten::cudnn_convolution_relu", convolution_relu},
    {"aten::cudnn_convolution_transpose", convolution_transpose},
    {"aten::cudnn_grid_sampler", grid_sampler},
    {"aten::cudnn_grid_sampler_backward", grid_sampler_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> cudnn_bodies() {
  return kCudnnBodies;
}

}  // namespace spillway::operators
