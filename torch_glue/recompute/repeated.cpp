// SPDX-License-Identifier: Apache-2.0
// Operators that are repeated with the arguments of the forward pass. Their nodes need no rules of
// their own.
#include "torch_glue/saved_tensors/repeated_operator.h"

namespace spillway {
namespace {

using Kind = RepeatedKind;

constexpr Kind kKinds[] = {
    // Convolutions, products and attention
    {"convolution", Kind::kExpensive | Kind::kBenchmarks},
    {"cudnn_convolution", Kind::kExpensive | Kind::kBenchmarks},
    {"cudnn_convolution_transpose", Kind::kExpensive | Kind::kBenchmarks},
    {"bmm", Kind::kExpensive},
    {"baddbmm", Kind::kExpensive},
    {"addbmm", Kind::kExpensive},
    {"_grouped_mm", Kind::kExpensive},
    {"mv", Kind::kExpensive},
    {"addmv", Kind::kExpensive},
    {"_scaled_dot_product_flash_attention", Kind::kExpensive | Kind::kDraws},
    {"_scaled_dot_product_efficient_attention", Kind::kExpensive | Kind::kDraws},
    {"_scaled_dot_product_cudnn_attention", Kind::kExpensive | Kind::kDraws},
    {"_flash_attention_forward", Kind::kExpensive | Kind::kDraws},
    {"_efficient_attention_forward", Kind::kExpensive | Kind::kDraws},
    {"_cudnn_rnn", Kind::kExpensive | Kind::kRecurrent},

    // Pooling and interpolation
    {"avg_pool2d"},
    {"avg_pool3d"},
    {"_adaptive_avg_pool2d"},
    {"_adaptive_avg_pool3d"},
    {"max_pool2d_with_indices", Kind::kIndex},
    {"max_pool3d_with_indices", Kind::kIndex},
    {"adaptive_max_pool2d", Kind::kIndex},
    {"adaptive_max_pool3d", Kind::kIndex},
    {"upsample_nearest1d"},
    {"upsample_nearest2d"},
    {"upsample_nearest3d"},
    {"_upsample_nearest_exact1d"},
    {"_upsample_nearest_exact2d"},
    {"_upsample_nearest_exact3d"},
    {"upsample_linear1d"},
    {"upsample_bilinear2d"},
    {"upsample_bicubic2d"},
    {"upsample_trilinear3d"},
    {"_upsample_bilinear2d_aa"},
    {"_upsample_bicubic2d_aa"},
    {"grid_sampler_2d"},
    {"grid_sampler_3d"},

    // Look-ups, joins and paddings
    {"embedding"},
    {"cat"},
    {"stack"},
    {"clone"},
    {"constant_pad_nd"},
    {"reflection_pad1d"},
    {"reflection_pad2d"},
    {"reflection_pad3d"},
    {"replication_pad1d"},
    {"replication_pad2d"},
    {"replication_pad3d"},
    {"index.Tensor"},
    {"index_select"},
    {"gather"},
    {"take"},
    {"where.self"},
    {"masked_fill.Scalar"},
    {"masked_fill.Tensor"},
    {"roll"},
    {"flip"},
    {"tril"},
    {"triu"},
    {"repeat"},
    {"pixel_shuffle"},
    {"pixel_unshuffle"},

    // Reductions and cumulative operators
    {"sum"},
    {"sum.dim_IntList"},
    {"mean"},
    {"mean.dim"},
    {"var.correction"},
    {"std.correction"},
    {"var_mean.correction"},
    {"std_mean.correction"},
    {"amax"},
    {"amin"},
    {"max.dim", Kind::kIndex},
    {"min.dim", Kind::kIndex},
    {"prod.dim_int"},
    {"logsumexp"},
    {"linalg_vector_norm"},
    {"_log_softmax"},
    {"cumsum", Kind::kScans},
    {"cumprod", Kind::kScans},
    {"logcumsumexp", Kind::kScans},
    {"cummax", Kind::kScans | Kind::kIndex},
    {"cummin", Kind::kScans | Kind::kIndex},

    // Elementwise
    {"exp"},
    {"exp2"},
    {"expm1"},
    {"log"},
    {"log2"},
    {"log10"},
    {"log1p"},
    {"sqrt"},
    {"rsqrt"},
    {"reciprocal"},
    {"abs"},
    {"erf"},
    {"tan"},
    {"atan"},
    {"sinh"},
    {"cosh"},
    {"clamp"},
    {"clamp_min"},
    {"clamp_max"},
    {"maximum"},
    {"minimum"},
    {"lerp.Scalar"},
    {"lerp.Tensor"},
    {"addcmul"},
    {"addcdiv"},
    {"pow.Tensor_Tensor"},
    {"log_sigmoid_forward"},
    {"softshrink"},
    {"hardshrink"},
    {"threshold"},
    {"_prelu_kernel"},

    // Cells of recurrent layers
    {"_thnn_fused_lstm_cell", Kind::kWorkspace},
    {"_thnn_fused_gru_cell", Kind::kWorkspace},

    // Views
    {"alias", Kind::kView},
    {"transpose.int", Kind::kView},
    {"t", Kind::kView},
    {"permute", Kind::kView},
    {"select.int", Kind::kView},
    {"slice.Tensor", Kind::kView},
    {"unbind.int", Kind::kView},
    {"split.Tensor", Kind::kView},
    {"split_with_sizes", Kind::kView},
    {"expand", Kind::kView},
    {"unsqueeze", Kind::kView},
    {"squeeze", Kind::kView},
    {"squeeze.dim", Kind::kView},
    {"squeeze.dims", Kind::kView},
    {"diagonal", Kind::kView},
    {"unfold", Kind::kView},
};

}  // namespace

c10::ArrayRef<RepeatedKind> repeated_kinds() {
  return kKinds;
}

}  // namespace spillway
