// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

#include <ATen/BlasBackend.h>

// Products of 8-bit floating-point matrices with scales: both are multiplied out in float, which
// holds every 8-bit number and its scale exactly enough for any order of sums.
namespace spillway::operators {
namespace {

using at::blas::ScalingType;

constexpr int64_t kSwizzled = 1;
constexpr int64_t kBlock = 128;

void refuse_scales(const at::Tensor& scale, const char* which) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "the emulated GPU has scales by tensor, row, 1x128, 128x128 and swizzled 1x32 blocks, not ",
      which,
      " of shape ",
      scale.sizes(),
      ". Multiply the scales out first.");
}

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// Tensor cores read scales of 1x32 blocks in tiles of 128 rows and 4 columns, in which 4 groups of
/// 32 rows lie side by side.
at::Tensor unswizzled(const at::Tensor& scale, int64_t rows, int64_t columns) {
  const int64_t down = divide_up(rows, kBlock);
  const int64_t across = divide_up(columns, 4);
  TORCH_CHECK(scale.numel() == down * across * kBlock * 4,
              "_scaled_mm: ",
              rows,
              " rows of ",
              columns,
              " blocks need ",
              down * across * kBlock * 4,
              " swizzled scales, padded to tiles of 128 x 4, not ",
              scale.numel());
  return scale.to(at::kFloat)
      .reshape({down, across, 32, 4, 4})
      .permute({0, 3, 2, 1, 4})
      .reshape({down * kBlock, across * 4})
      .narrow(0, 0, rows)
      .narrow(1, 0, columns);
}

at::Tensor widen(const at::Tensor& scale, int64_t block, int64_t size, int64_t dim) {
  return scale.repeat_interleave(block, dim).narrow(dim, 0, size);
}

/// The matrix with its scales multiplied out; its rows run along the dimension of the sums.
at::Tensor scaled(const at::Tensor& matrix, const at::Tensor& scale, ScalingType recipe) {
  const int64_t rows = matrix.size(0);
  const int64_t width = matrix.size(1);
  const at::Tensor numbers = matrix.to(at::kFloat);
  switch (recipe) {
    case ScalingType::TensorWise:
      return numbers * scale.to(at::kFloat).reshape({});
    case ScalingType::RowWise:
      return numbers * scale.to(at::kFloat).reshape({rows, 1});
    case ScalingType::BlockWise1x32:
      return numbers * widen(unswizzled(scale, rows, divide_up(width, 32)), 32, width, 1);
    case ScalingType::BlockWise1x128:
      return numbers * widen(scale, kBlock, width, 1);
    case ScalingType::BlockWise128x128: {
      // Blocks of the sums' dimension first, and padded to a multiple of 4 of them.
      const at::Tensor blocks = scale.narrow(0, 0, divide_up(width, kBlock)).t();
      return numbers * widen(widen(blocks, kBlock, rows, 0), kBlock, width, 1);
    }
    default:
      refuse_scales(scale, "those");
      return {};
  }
}

at::Tensor finished(at::Tensor made,
                    const std::optional<at::Tensor>& bias,
                    const std::optional<at::Tensor>& result_scale,
                    at::ScalarType type) {
  if (bias) made = made + bias->to(at::kFloat);
  if (result_scale) made = made * *result_scale;
  return made.to(type);
}

at::ScalarType type_or(const c10::IValue& wanted, at::ScalarType otherwise) {
  return wanted.isNone() ? otherwise : wanted.toScalarType();
}

struct Scale {
  at::Tensor values;
  ScalingType recipe;
};

/// For the older operator the shape of the scales determines their layout; `rows` and `width` as in
/// `scaled`.
Scale by_shape(const at::Tensor& scale, int64_t rows, int64_t width, bool first) {
  const int64_t blocks = divide_up(width, kBlock);
  if (scale.scalar_type() == at::kFloat8_e8m0fnu) return {scale, ScalingType::BlockWise1x32};
  if (scale.dim() == 2) {
    const at::Tensor along = first ? scale : scale.t();
    if (along.size(0) == rows && along.size(1) == 1) return {along, ScalingType::RowWise};
    if (along.size(0) == rows && along.size(1) == blocks)
      return {along, ScalingType::BlockWise1x128};
    if (along.size(0) == divide_up(rows, kBlock) && along.size(1) == blocks)
      return {along.t(), ScalingType::BlockWise128x128};
  }
  refuse_scales(scale, first ? "scale_a" : "scale_b");
  return {};
}

at::Tensor multiply(const c10::Stack& s) {
  const at::Tensor a = s[0].toTensor();
  const at::Tensor b = s[1].toTensor();
  const at::Tensor scale_a = s[2].toTensor();
  const at::Tensor scale_b = s[3].toTensor();
  const at::ScalarType type = type_or(s[6], a.scalar_type());
  if (scale_a.numel() == 1 && scale_b.numel() == 1) {
    return at::_scaled_mm(
        a, b, scale_a, scale_b, optional_tensor(s[4]), optional_tensor(s[5]), type, s[7].toBool());
  }
  const Scale left = by_shape(scale_a, a.size(0), a.size(1), true);
  const Scale right = by_shape(scale_b, b.size(1), b.size(0), false);
  const at::Tensor made =
      at::mm(scaled(a, left.values, left.recipe), scaled(b.t(), right.values, right.recipe).t());
  return finished(made, optional_tensor(s[4]), optional_tensor(s[5]), type);
}

void scaled_mm(c10::Stack& s, const Draws&) {
  set_results(s, multiply(s));
}

void scaled_mm_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[8].toTensor();
  const at::Tensor made = multiply(s);
  set_results(s, out.resize_as_(made).copy_(made));
}

/// The newer operator has a scaling argument per factor; one level of scales each.
at::Tensor factor(const at::Tensor& matrix,
                  const c10::IValue& scales,
                  const c10::IValue& recipes,
                  const c10::IValue& swizzles) {
  const auto given = scales.toTensorVector();
  const auto how = recipes.toIntVector();
  TORCH_CHECK(!given.empty() && !how.empty(),
              "_scaled_mm_v2: the matrix of shape ",
              matrix.sizes(),
              " has ",
              given.size(),
              " scales and ",
              how.size(),
              " recipes. Pass at least one of each.");
  const auto recipe = static_cast<ScalingType>(how[0]);
  const auto swizzle = swizzles.toIntVector();
  const bool swizzled = !swizzle.empty() && swizzle[0] == kSwizzled;
  if (given.size() != 1 || swizzled != (recipe == ScalingType::BlockWise1x32)) {
    refuse_scales(given[0], "these levels or this swizzle");
  }
  return scaled(matrix, given[0], recipe);
}

at::Tensor multiply_v2(const c10::Stack& s) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      s[10].toIntVector().empty(),
      "_scaled_mm_v2: the emulated GPU does not support contraction_dim. Leave it out.");
  const at::Tensor a = s[0].toTensor();
  const at::Tensor left = factor(a, s[2], s[3], s[4]);
  const at::Tensor right = factor(s[1].toTensor().t(), s[5], s[6], s[7]);
  return finished(
      at::mm(left, right.t()), optional_tensor(s[8]), {}, type_or(s[9], a.scalar_type()));
}

void scaled_mm_v2(c10::Stack& s, const Draws&) {
  set_results(s, multiply_v2(s));
}

void scaled_mm_v2_out(c10::Stack& s, const Draws&) {
  at::Tensor out = s[12].toTensor();
  const at::Tensor made = multiply_v2(s);
  set_results(s, out.resize_as_(made).copy_(made));
}

/// One matrix for each group of rows (or for each matrix of a batch), with scales by row.
void scaled_grouped_mm(c10::Stack& s, const Draws&) {
  const at::Tensor a = s[0].toTensor();
  const at::Tensor b = s[1].toTensor();
  const at::Tensor scale_a = s[2].toTensor();
  const at::Tensor scale_b = s[3].toTensor();
  if (b.dim() != 3 || scale_a.scalar_type() != at::kFloat || scale_b.dim() != 2) {
    refuse_scales(scale_b, "grouped ones");
  }
  const at::ScalarType type = type_or(s[7], at::kBFloat16);
  const at::Tensor left = a.to(at::kFloat) * scale_a.unsqueeze(-1);
  const at::Tensor right = b.to(at::kFloat) * scale_b.unsqueeze(-2);
  if (a.dim() == 3) return set_results(s, at::bmm(left, right).to(type));
  const at::Tensor ends = s[4].toTensor();
  std::vector<at::Tensor> made;
  int64_t begin = 0;
  for (int64_t group = 0; group < b.size(0); ++group) {
    const int64_t end = ends[group].item<int64_t>();
    made.push_back(at::mm(left.slice(0, begin, end), right[group]));
    begin = end;
  }
  // Rows past the last group stay as they are in memory on a GPU.
  made.push_back(at::zeros({a.size(0) - begin, b.size(2)}, at::kFloat));
  set_results(s, at::cat(made).to(type));
}

constexpr NamedBody kScaledMatmulBodies[] = {
    {"aten::_scaled_grouped_mm", scaled_grouped_mm},
    {"aten::_scaled_mm", scaled_mm},
    {"aten::_scaled_mm.out", scaled_mm_out},
    {"aten::_scaled_mm_v2", scaled_mm_v2},
    {"aten::_scaled_mm_v2.out", scaled_mm_v2_out},
};

}  // namespace

c10::ArrayRef<NamedBody> scaled_matmul_bodies() {
  return kScaledMatmulBodies;
}

}  // namespace spillway::operators
