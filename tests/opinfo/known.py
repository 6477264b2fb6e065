# SPDX-License-Identifier: Apache-2.0
"""Where the emulated GPU and the CPU do not agree bit for bit, and why.

Both lists are complete: a new disagreement fails, and so does an entry that agrees.
"""

import torch

FORMULA = "PyTorch's own formula depends on the device"
OTHER_TYPE = "a result has another type on CUDA"
NO_CUDA_KERNEL = "PyTorch has no CUDA kernel for one of its forms"
UNTRACED = "not traced to its cause yet"

# Entry of the operator database: (cause, where in PyTorch, or what is missing).
FLOAT32 = {
    "narrow_copy": (NO_CUDA_KERNEL, "native_functions.yaml narrow_copy.out: CPU only"),
    "renorm": (FORMULA, "FunctionsManual.cpp renorm_backward: toAccumulateType by device"),
    "sparse.mm.reduce": (NO_CUDA_KERNEL, "native_functions.yaml _sparse_mm_reduce_impl: CPU only"),
}
BFLOAT16 = {
    "narrow_copy": FLOAT32["narrow_copy"],
    "native_layer_norm": (OTHER_TYPE, "cuda/layer_norm_kernel.cu layer_norm_cuda: mean and rstd in float"),
    "sparse.mm.reduce": FLOAT32["sparse.mm.reduce"],
}
SINCE_2_15 = torch.torch_version.TorchVersion(torch.__version__) >= (2, 15)
if SINCE_2_15:
    attention = {
        "nn.functional.scaled_dot_product_attention": (UNTRACED, "the result's strides"),
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": (NO_CUDA_KERNEL, "a CPU function"),
    }
    chunked = (UNTRACED, "gradients, by a bit or two")
    FLOAT32 |= attention
    BFLOAT16 |= attention | {
        "nn.functional.linear_cross_entropy.chunked": chunked,
        "nn.functional.linear_cross_entropy.chunked_none": chunked,
    }
DISAGREEMENTS = {"float32": FLOAT32, "bfloat16": BFLOAT16}

# These may agree or not: the bits that LAPACK gives on the CPU depend on how the memory is aligned.
UNSTABLE = {"linalg.lstsq", "linalg.lstsq.grad_oriented"}
