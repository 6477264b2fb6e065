# SPDX-License-Identifier: Apache-2.0
"""Device memory holds what a GPU's would: operators' results, from the current CUDA allocator."""

import ctypes
import os
import tempfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn

MIB = 1 << 20


def peak_of(operator):
    """What the operator adds to the memory in use, at its highest and after it."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = operator()
    return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before, kept


@pytest.mark.parametrize(
    "operator", [lambda x: x.softmax(-1), lambda x: x + 1, lambda x: F.gelu(x), torch.clone]
)
def test_the_peak_rises_by_the_result(operator):
    x = torch.randn(512, 512, device="cuda")
    peak, kept, _ = peak_of(lambda: operator(x))
    assert peak == kept == MIB


def test_temporaries_of_the_cpu_kernel_do_not_count():
    x = torch.randn(1, 64, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    layer = nn.Conv2d(64, 64, 3, padding=1, device="cuda").to(memory_format=torch.channels_last)
    peak, kept, _ = peak_of(lambda: layer(x))
    assert peak == kept == 64 * 32 * 32 * 4


def test_in_place_takes_no_memory():
    x = torch.randn(512, 512, device="cuda")
    assert peak_of(lambda: x.mul_(2).exp_())[0] == 0


def test_in_place_keeps_the_address():
    x = torch.randn(512, 512, device="cuda")
    address = x.data_ptr()
    assert x.mul_(2) is x
    assert x.data_ptr() == address


def test_an_out_argument_gets_the_memory_of_its_new_size():
    out = torch.empty(0, device="cuda")
    peak, kept, _ = peak_of(
        lambda: torch.cat([torch.ones(0, device="cuda"), torch.ones(MIB // 4, device="cuda")], out=out)
    )
    assert kept == MIB
    assert peak == 2 * MIB
    assert out.is_cuda
    assert out.sum().item() == MIB // 4


def test_views_take_no_memory():
    x = torch.randn(512, 512, device="cuda")
    peak, _, views = peak_of(lambda: (x.t(), x[3], x.view(-1), x.expand(4, 512, 512), x.diagonal()))
    assert peak == 0
    assert all(view.untyped_storage().data_ptr() == x.data_ptr() for view in views)


def test_results_die_with_their_last_tensor():
    x = torch.randn(512, 512, device="cuda")
    _, _, made = peak_of(lambda: x * 2)
    before = torch.cuda.memory_allocated()
    del made
    assert before - torch.cuda.memory_allocated() == MIB


def test_results_that_share_a_storage_keep_sharing_it():
    values, _ = torch.var_mean(torch.randn(4, 4, device="cuda"))
    real, imaginary = torch.view_as_real(torch.randn(4, device="cuda", dtype=torch.cfloat)).unbind(-1)
    assert values.is_cuda
    assert real.untyped_storage().data_ptr() == imaginary.untyped_storage().data_ptr()


def test_a_pool_serves_the_results_made_inside_it():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        made = torch.randn(64, device="cuda") * 2
    assert any(
        segment["address"] <= made.data_ptr() < segment["address"] + segment["total_size"]
        for segment in pool.snapshot()
    )


def test_too_large_a_result_is_out_of_memory_and_leaves_the_inputs():
    x = torch.ones(1024, 1, device="cuda")
    torch.cuda.set_per_process_memory_fraction(0.001)  # of 8 GiB
    try:
        with pytest.raises(torch.OutOfMemoryError):
            x.expand(1024, 16 * 1024).clone()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert x.sum().item() == 1024


def test_storages_resize():
    x = torch.ones(64, device="cuda")
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(256)
    assert x.zero_().sum().item() == 0


CUBLAS_WORKSPACE = 4096 * 8 * 1024  # ATen/cuda/CublasHandlePool.cpp, capability 9.0
WORKSPACES_STAY = torch.torch_version.TorchVersion(torch.__version__) < (2, 15) or (
    os.environ.get("TORCH_CUBLAS_WORKSPACE_CACHE") == "1"
)


@pytest.mark.skipif(WORKSPACES_STAY, reason="this torch keeps them")
def test_each_matrix_product_has_a_workspace_of_its_own():
    x = torch.ones(64, 64, device="cuda")
    for _ in range(2):
        assert peak_of(lambda: x @ x)[:2] == (CUBLAS_WORKSPACE + 64 * 64 * 4, 64 * 64 * 4)


@pytest.mark.skipif(
    not WORKSPACES_STAY, reason="this torch frees them, without TORCH_CUBLAS_WORKSPACE_CACHE=1"
)
def test_the_first_matrix_product_on_a_stream_takes_a_workspace():
    torch._C._cuda_clearCublasWorkspaces()
    x = torch.ones(64, 64, device="cuda")
    _, kept, first = peak_of(lambda: x @ x)
    assert kept == CUBLAS_WORKSPACE + 64 * 64 * 4
    assert peak_of(lambda: x @ first)[1] == 64 * 64 * 4
    with torch.cuda.stream(torch.cuda.Stream()):
        assert peak_of(lambda: x @ first)[1] == CUBLAS_WORKSPACE + 64 * 64 * 4
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    assert before - torch.cuda.memory_allocated() == 2 * CUBLAS_WORKSPACE


class Borrowed:
    """Memory of cudaMalloc, as other libraries hand it to PyTorch."""

    def __init__(self, elements):
        at = ctypes.c_void_p()
        assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(at), ctypes.c_size_t(4 * elements)) == 0
        self.at = at
        self.__cuda_array_interface__ = {
            "data": (at.value, False),
            "shape": (elements,),
            "typestr": "<f4",
            "version": 3,
        }

    def free(self):
        assert ctypes.CDLL(None).cudaFree(self.at) == 0


def add_to_memory_that_is_gone():
    """The error, and what stands on stderr before it."""
    torch.cuda.init()
    borrowed = Borrowed(MIB)
    tensor = torch.as_tensor(borrowed, device="cuda")
    borrowed.free()
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            tensor + 1
            error = ""
        except RuntimeError as raised:
            error = str(raised)
        finally:
            os.dup2(stderr, 2)
        written.seek(0)
        return [error, written.read().decode()]


def test_an_operator_on_memory_that_is_gone_is_an_illegal_access_with_its_name(elsewhere):
    error, written = elsewhere(add_to_memory_that_is_gone)
    assert "an operation accessed memory that was unmapped before it ran" in error
    assert 'spillway-emulator: illegal address: "aten::add.Tensor" on device 0 reads' in written


def scratch_of(operator):
    """The bytes that it takes for the time of the call, besides its results."""
    operator()  # cuBLAS's workspaces stay
    peak, kept, _ = peak_of(operator)
    return peak - kept


def scratch_of_attention(name, heads, width, length):
    def like(of):
        return torch.empty(2, of, length, width, device="cuda", dtype=torch.bfloat16)

    qkv = like(heads[0]), like(heads[1]), like(heads[1])
    aten = torch.ops.aten
    if name == "flash":
        out, *saved, generator, unused, _ = aten._scaled_dot_product_flash_attention(*qkv)
        return scratch_of(
            lambda: aten._scaled_dot_product_flash_attention_backward(
                out, *qkv, out, *saved, 0.0, False, generator, unused
            )
        )
    if name == "cuDNN":
        found = aten._scaled_dot_product_cudnn_attention(*qkv, None, True)
        out, lengths, generator = found[0], found[2:6], found[6:8]
        return scratch_of(
            lambda: aten._scaled_dot_product_cudnn_attention_backward(
                out, *qkv, out, found[1], *generator, None, *lengths, 0.0, False
            )
        )
    out, *saved = aten._scaled_dot_product_efficient_attention(*qkv, None, True)
    return scratch_of(
        lambda: aten._scaled_dot_product_efficient_attention_backward(
            out, *qkv, None, out, *saved, 0.0, [True, True, True, False]
        )
    )


# flash_attn/flash_api.cpp mha_bwd: (batch, heads, length), that with the width, keys and values of all heads
@pytest.mark.parametrize("shape_only", ["0", "1"])
@pytest.mark.parametrize(
    ("given", "blocks"),
    [
        (("flash", (8, 8), 64, 128), [2 * 8 * 128 * 4, 2 * 8 * 128 * 64 * 4]),
        (("flash", (8, 8), 72, 130), [2 * 8 * 256 * 4, 2 * 8 * 256 * 96 * 4]),
        (("flash", (8, 2), 64, 128), [2 * 8 * 128 * 4, 2 * 8 * 128 * 64 * 4] + 2 * [2 * 8 * 128 * 64 * 2]),
        (("cuDNN", (8, 8), 64, 128), [2 * 8 * 128 * 4, 2 * 8 * 128 * 64 * 4]),
        (("efficient", (8, 8), 64, 128), [2 * 8 * 128 * 4, 2 * 8 * 128 * 64 * 4]),
    ],
)
def test_attention_takes_scratch_for_its_backward_pass(elsewhere, given, blocks, shape_only):
    assert elsewhere(scratch_of_attention, *given, shape_only=shape_only) == sum(blocks)


# EmbeddingBackwardKernel.cu: two sorted lists, and a float row for each ten places and each row of the weight
@pytest.mark.parametrize(
    ("indices", "taken"),
    [(3072, 0), (4096, 2 * 4096 * 8 + 4505 * 64 * 4), (8192, 2 * 8192 * 8 + 5819 * 64 * 4)],
)
def test_an_embedding_takes_scratch_for_its_backward_pass(indices, taken):
    gradient = torch.zeros(indices, 64, device="cuda", dtype=torch.bfloat16)
    places = torch.zeros(indices, device="cuda", dtype=torch.long)
    found = scratch_of(lambda: torch.ops.aten.embedding_dense_backward(gradient, places, 5000, -1, False))
    assert found == -(-taken // 512) * 512


def test_a_convolution_takes_scratch_for_what_is_not_in_channels_last_order():
    layer = torch.nn.Conv2d(16, 32, 3, bias=False, device="cuda").requires_grad_(False)
    images = torch.ones(4, 16, 18, 18, device="cuda")
    assert scratch_of(lambda: layer(images)) == 4 * (images.numel() + layer.weight.numel())
    layer, images = (each.to(memory_format=torch.channels_last) for each in (layer, images))
    assert scratch_of(lambda: layer(images)) == 0
