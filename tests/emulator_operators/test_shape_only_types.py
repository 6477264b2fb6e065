# SPDX-License-Identifier: Apache-2.0
"""What a GPU refuses for its types a dry run refuses too, where PyTorch's Meta kernels take it."""

import pytest
import torch
import torch.nn.functional as F

ROWS = 4096  # more than what a dry run computes


def made(*sizes, dtype=torch.float32):
    return torch.empty(*sizes, device="cuda", dtype=dtype)


def programs():
    """By name: the program, and what one of its tensors must not be."""
    half, long, int32 = torch.half, torch.long, torch.int32
    index = torch.empty(ROWS, device="cuda", dtype=long)
    x, images = made(ROWS, 64), made(4, 8, ROWS, 32)
    batch = made(4, ROWS, 64)
    return {
        "mm": (lambda t: x @ made(64, 32, dtype=t), half),
        "linear": (lambda t: F.linear(x, made(32, 64, dtype=t), made(32)), half),
        "linear's bias": (lambda t: F.linear(x, made(32, 64), made(32, dtype=t)), half),
        "bmm": (lambda t: batch @ made(4, 64, 32, dtype=t), half),
        "baddbmm": (lambda t: torch.baddbmm(made(4, ROWS, 32, dtype=t), batch, made(4, 64, 32)), half),
        "mv": (lambda t: x.mv(made(64, dtype=t)), half),
        "conv2d": (lambda t: F.conv2d(images, made(8, 8, 3, 3, dtype=t)), half),
        "cross_entropy": (lambda t: F.cross_entropy(x, made(ROWS, dtype=t)), (int32, (long,))),
        "its weights": (lambda t: F.cross_entropy(x, index, weight=made(64, dtype=t)), torch.double),
        "binary_cross_entropy": (lambda t: F.binary_cross_entropy(x, made(ROWS, 64, dtype=t)), long),
        "index_select": (lambda t: x.index_select(0, made(ROWS, dtype=t)), (torch.int16, (long, int32))),
        "index_add": (lambda t: x.index_add_(0, index, made(ROWS, 64, dtype=t)), half),
        "index_copy": (lambda t: x.index_copy_(0, index, made(ROWS, 64, dtype=t)), half),
        "its index": (lambda t: x.index_copy_(0, made(ROWS, dtype=t), x), (int32, (long,))),
        "index_put": (lambda t: x.index_put_((index,), made(ROWS, 64, dtype=t)), half),
        "masked_fill": (lambda t: x.masked_fill(made(ROWS, 64, dtype=t), 0), (long, (torch.bool,))),
        "bincount": (lambda t: made(ROWS, dtype=t).bincount(minlength=9), (torch.float32, (long,))),
        "bitwise and": (lambda t: made(ROWS, 64, dtype=t) & 1, (half, (long, torch.bool))),
        "softmax": (lambda t: made(ROWS, 64, dtype=t).softmax(-1), (long, (half,))),
        "gelu": (lambda t: F.gelu(made(ROWS, 64, dtype=t)), (long, (half,))),
        "max_pool2d": (lambda t: F.max_pool2d(made(4, 8, ROWS, 32, dtype=t), 2), (torch.bool, (half,))),
    }


def refusals():
    seen = {}
    for name, (program, wrong) in programs().items():
        wrong, right = wrong if isinstance(wrong, tuple) else (wrong, (torch.float32,))
        for dtype in right:
            program(dtype)
        try:
            program(wrong)
            seen[name] = "passes"
        except (RuntimeError, NotImplementedError) as error:
            text = str(error).splitlines()[0]
            seen[name] = (
                text if isinstance(error, NotImplementedError) == ("not implemented" in text) else repr(error)
            )
    return seen


def taken():
    """What looks as wrong, and is not."""
    x, mask = made(ROWS, 64).sigmoid(), made(ROWS, 64, dtype=torch.bool)
    half = made(ROWS, 64, dtype=torch.half)
    half[mask] = torch.tensor(0.0)  # of the host's
    F.binary_cross_entropy(x, made(ROWS, 64), weight=mask)
    factors = made(ROWS, ROWS, dtype=torch.bfloat16)
    results = [
        torch.mm(factors, factors, out_dtype=torch.float32),
        half.softmax(-1, dtype=torch.float32),
        x.masked_fill(mask, 1),
    ]
    return [str(each.dtype) for each in results]


def test_types_that_a_gpu_takes(elsewhere):
    assert elsewhere(taken, shape_only="1", memory="80GiB") == ["torch.float32"] * 3


def test_types_that_a_gpu_refuses(elsewhere):
    seen = elsewhere(refusals, shape_only="1", memory="80GiB")
    expected = {
        "mm": "aten::mm: expected one type, but mat2 is Half beside Float",
        "linear": "aten::addmm: expected one type, but mat2 is Half beside Float",
        "linear's bias": "aten::addmm: expected one type, but mat1 is Float beside Half",
        "bmm": "aten::bmm: expected one type, but mat2 is Half beside Float",
        "baddbmm": "aten::baddbmm: expected one type, but batch1 is Float beside Half",
        "mv": "aten::addmv_: expected one type, but mat is Float beside Half",
        "conv2d": "aten::convolution: expected one type, but weight is Half beside Float",
        "cross_entropy": "aten::nll_loss_forward: expected int64, but target is Int",
        "its weights": "aten::nll_loss_forward: expected one type, but weight is Double beside Float",
        "binary_cross_entropy": "aten::binary_cross_entropy: not implemented for Long on a GPU (target)",
        "index_select": "aten::index_select: expected int64 or int32, but index is Short",
        "index_add": "aten::index_add_: expected one type, but source is Half beside Float",
        "index_copy": "aten::index_copy_: expected one type, but source is Half beside Float",
        "its index": "aten::index_copy_: expected int64, but index is Int",
        "index_put": "aten::_index_put_impl_: expected one type, but values is Half beside Float",
        "masked_fill": "aten::masked_fill_: expected bool, but mask is Long",
        "bincount": "aten::bincount: not implemented for Float on a GPU (self)",
        "bitwise and": "aten::bitwise_and: not implemented for Half on a GPU (self)",
        "softmax": "aten::_softmax: not implemented for Long on a GPU (self)",
        "gelu": "aten::gelu: not implemented for Long on a GPU (self)",
        "max_pool2d": "aten::max_pool2d_with_indices: not implemented for Bool on a GPU (self)",
    }
    assert seen == expected


def products_of_a_wider_type(batch):
    """By operator and form, the result of a product in half precision whose result is float32."""
    product, added = (torch.bmm, torch.baddbmm) if batch else (torch.mm, torch.addmm)
    narrow, wide = (made(*batch, 128, 96, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    factors = made(*batch, 128, 64, dtype=narrow.dtype), made(*batch, 64, 96, dtype=narrow.dtype)
    calls = {
        "product": lambda **given: product(*factors, **given),
        "sum": lambda **given: added(wide, *factors, **given),
        "scaled sum": lambda **given: added(narrow, *factors, beta=0.5, alpha=2, **given),
    }
    seen = {}
    for name, call in calls.items():
        for form, given in (("result", {}), ("out", {"out": wide})):
            result = call(out_dtype=wide.dtype, **given)
            placed = (str(result.dtype), list(result.shape), list(result.stride()))
            seen[f"{name}, {form}"] = [*placed, result.data_ptr() == wide.data_ptr()]
    return seen


@pytest.mark.parametrize("batch", [(), (3,)], ids=["matrices", "batches"])
def test_products_of_a_wider_type_have_the_shapes_of_a_real_run(elsewhere, batch):
    real = elsewhere(products_of_a_wider_type, batch)
    assert elsewhere(products_of_a_wider_type, batch, shape_only="1", memory="80GiB") == real
    assert {result[0] for result in real.values()} == {"torch.float32"}
