# SPDX-License-Identifier: Apache-2.0
"""What cannot move is fetched as it was, and is counted by its reason."""

import contextlib
import functools
import warnings

import spillway
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cases import case
from cases.measure import Copied, last, residency, same, same_bits, save

ROWS = 64
NBYTES = ROWS * ROWS * 4


def plain():
    """Nothing else references it."""
    return torch.randn(ROWS, ROWS, generator=torch.Generator().manual_seed(3)).cuda()


def counted(tag, *tensors):
    """Saves them beside one that moves: what is fetched of them, and the storages and bytes by reason."""
    seen = []
    with spillway.CPUOffload(1, tag=tag), Copied() as copied:
        graph = save(seen, *tensors, plain())
    torch.cuda.synchronize()
    spillway.step()  # over PyTorch's allocator the source ends here
    skipped = last(tag)["skipped"]
    graph.backward()
    assert (copied.out, copied.stashes) == (NBYTES, 1)
    assert same_bits(seen.pop(), plain())
    assert residency()["on_host_bytes"] == 0
    return seen, {reason: (count["storages"], count["bytes"]) for reason, count in skipped.items()}


def kept(tag, reason, nbytes, *tensors):
    """They stay for one reason; what is fetched has their kinds."""
    seen, skipped = counted(tag, *tensors)
    assert skipped == {reason: (len(tensors), nbytes)}, skipped
    for tensor, back in zip(tensors, seen, strict=True):
        assert type(back) is type(tensor) and back.dtype == tensor.dtype and back.layout == tensor.layout
        assert back.device == tensor.device and back.shape == tensor.shape
        assert back.is_quantized == tensor.is_quantized and back.is_nested == tensor.is_nested
    return seen


@case
def sparse_tensors_of_every_layout_stay_and_are_counted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls some layouts a beta
        x = plain()
        sparse = [x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr(8), x.to_sparse_bsc(8)]
        for back in kept("sparse", "not_strided", 0, *sparse):
            assert same_bits(back.to_dense(), x), back.layout


@case
def quantized_tensors_stay_and_are_counted():
    # Made without values: what counts is that they are left where they are.
    scales, zeros = torch.full((ROWS,), 0.05, device="cuda"), torch.zeros(ROWS, device="cuda")
    quantized = [
        torch._empty_affine_quantized(
            (ROWS, ROWS), scale=0.05, zero_point=3, dtype=torch.qint8, device="cuda"
        ),
        torch._empty_per_channel_affine_quantized(
            (ROWS, ROWS), scales=scales, zero_points=zeros, axis=0, dtype=torch.quint8, device="cuda"
        ),
    ]
    assert all(tensor.is_quantized for tensor in quantized)
    for back, tensor in zip(kept("quantized", "not_strided", 0, *quantized), quantized, strict=True):
        assert back.qscheme() == tensor.qscheme() and back.data_ptr() == tensor.data_ptr()


@case
def nested_tensors_stay_and_are_counted():
    def padded(*leaves):
        nested = torch.nested.as_nested_tensor(list(leaves))
        return torch.nested.to_padded_tensor(torch.nn.functional.silu(nested), 0.0)

    def gradients(manager, padded=padded):
        leaves = [plain().requires_grad_(), plain()[:16].detach().requires_grad_()]
        with manager, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls them a prototype
            loss = (padded(*(leaf * 1 for leaf in leaves)) * 2).sigmoid().sum()
        loss.backward()
        return [leaf.grad for leaf in leaves]

    expected = gradients(spillway.compat.NoOpManager())
    with Copied() as copied:
        assert same(gradients(spillway.CPUOffload(1, tag="nested")), expected)
    assert last("nested")["skipped"]["not_strided"]["storages"] > 0 and copied.out >= 2 * NBYTES
    with Copied() as copied:
        checkpointed = functools.partial(spillway.checkpoint, padded, offload_to_cpu=True)
        assert same(gradients(contextlib.nullcontext(), checkpointed), expected)
    assert copied.out > 0


@case
def tensors_that_are_not_on_the_device_stay_and_are_counted():
    host = torch.randn(ROWS, ROWS)
    (back, _) = kept("elsewhere", "not_on_device", 2 * NBYTES, host, torch.empty(ROWS, ROWS, device="meta"))
    assert same_bits(back, host)


@case
def classes_that_wrap_no_tensor_stay_and_are_counted():
    with FakeTensorMode():
        fake = torch.empty(ROWS, ROWS, device="cuda")
    kept("fake", "subclass", 0, fake)


@case
def parameters_and_small_tensors_stay_and_are_counted():
    parameter = torch.nn.Parameter(plain())
    small = torch.ones(255, device="cuda")
    seen, skipped = counted("small", parameter, parameter.t(), small, torch.tensor(3.0, device="cuda"))
    assert skipped == {"parameter": (1, NBYTES), "tiny": (2, 255 * 4 + 4)}, skipped
    assert seen[0].data_ptr() == parameter.data_ptr() and same_bits(seen[2], small)


@case
def integers_masks_and_expanded_tensors_move():
    def made():
        return [
            torch.arange(ROWS * ROWS, device="cuda"),
            plain() > 0,
            plain()[:1].expand(ROWS, ROWS),
        ]

    seen = []
    with spillway.CPUOffload(1, tag="offloadable"), Copied() as copied:
        graph = save(seen, *made())
    torch.cuda.synchronize()
    spillway.step()
    assert last("offloadable")["skipped"] == {} and copied.stashes == 3
    graph.backward()
    assert all(same_bits(back, tensor) for back, tensor in zip(seen, made(), strict=True))
    assert copied.out > 0 and seen[2].stride() == (0, 1)


def ragged(*rows):
    values = [torch.randn(n, ROWS, device="cuda") for n in rows]
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


@case
def jagged_nested_tensors_train_in_regions_and_checkpoints():
    torch.manual_seed(0)
    linear = torch.nn.Linear(ROWS, ROWS).cuda()
    nested = ragged(5, 17, 9)

    def work(x):
        return torch.nn.functional.gelu(linear(x)) * linear(x).sin() + x

    def gradients(call):
        linear.zero_grad()
        padded = torch.nested.to_padded_tensor(call(nested), 0.0)
        padded.square().mean().backward()
        return [p.grad for p in linear.parameters()]

    def inside(region):
        def call(x):
            with region():
                return work(x)

        return call

    plain = gradients(work)
    for number, call in enumerate(
        (
            inside(lambda: spillway.CPUOffload(1.0, tag="jagged")),
            inside(spillway.recompute),
            inside(lambda: spillway.compat.OffloadActivations(min_offload_size=0)),
            inside(spillway.compat.NoOpManager),
            lambda x: spillway.checkpoint(work, x),
            lambda x: spillway.checkpoint(work, x, offload_to_cpu=True),
        )
    ):
        assert same(gradients(call), plain), number


@case
def jagged_nested_tensors_stay_and_are_counted():
    for back in kept("jagged", "subclass", 0, ragged(ROWS, ROWS), ragged(3, 4)):
        assert back.layout == torch.jagged


class Refuses(torch.Tensor):
    """Wraps a tensor, and refuses what it is asked beyond arithmetic."""

    refused = ()

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        if "flatten" in self.refused:
            raise RuntimeError("flatten")
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Refuses(parts["inner"])

    def size(self, *_):
        if "size" in self.refused:
            raise TypeError("size")
        return self.inner.size()

    def stride(self, *_):
        if "stride" in self.refused:
            raise TypeError("stride")
        return self.inner.stride()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if "detach" in cls.refused and function is torch.ops.aten.detach.default:
            raise NotImplementedError("detach")
        plain = [each.inner if isinstance(each, Refuses) else each for each in args]
        return cls(function(*plain, **(kwargs or {})))


@case
def a_tensor_stays_whatever_its_class_refuses():
    for refused in ("flatten", "size", "stride", "flatten detach"):
        Refuses.refused = refused.split()
        tensor, seen = Refuses(plain()), []
        with spillway.CPUOffload(1, tag=f"refuses {refused}"):
            graph = save(seen, tensor)
        Refuses.refused = ()  # autograd itself detaches what hooks return
        graph.backward()
        spillway.step()
        (back,) = seen
        assert type(back) is Refuses and same_bits(back.inner, plain()), refused
        assert last(f"refuses {refused}")["skipped"] == {"subclass": {"storages": 1, "bytes": 0}}, refused
