# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operator database on the emulated GPU and on the CPU, compared bit for bit.

As a program it prints what is not equal, and the counts: `census.py [--dtype float32] [--only NAME…]`.
It needs the emulated GPU with SPILLWAY_EMULATE_RNG=cpu (see tests/opinfo/README.md).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import random
import sys
import time
import types
import unittest
import warnings

import numpy
import torch
from torch.utils._pytree import tree_leaves, tree_map

# PyTorch's test helpers derive their TestCase from this package's, and need nothing else of it here.
if "expecttest" not in sys.modules:
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

MOST_SAMPLES = 6
OTHER_DTYPES = (torch.complex64, torch.int64, torch.bool)  # for what takes no floating-point numbers
# Their results are whatever was in memory.
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@dataclasses.dataclass
class Outcome:
    name: str
    state: str  # "equal", "differs", "raises" (on the GPU only), "unsupported"
    why: str = ""
    forwards: int = 0
    gradients: int = 0
    variants: int = 0


class Different(Exception):
    pass


def entries():
    """The database's entries by name; the order is PyTorch's."""
    named = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        named.setdefault(name, op)
    return named


def dtype_for(op, wanted):
    """The type to use: the wanted one, or another where the operator has no floating-point kernels at all."""
    both = (
        op.dtypesIfCUDA & op.dtypes if isinstance(op.dtypes, set) else set(op.dtypesIfCUDA) & set(op.dtypes)
    )
    if wanted in both:
        return wanted
    if any(dtype.is_floating_point for dtype in both):
        return None
    return next((dtype for dtype in OTHER_DTYPES if dtype in both), None)


def seed():
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)


def samples_of(op, device, dtype, requires_grad):
    seed()
    return list(itertools.islice(op.sample_inputs(device, dtype, requires_grad=requires_grad), MOST_SAMPLES))


def moved(samples):
    """The samples on the emulated GPU, with the same strides and gaps."""

    def move(leaf):
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return torch.device("cuda")
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.layout != torch.strided or leaf.is_conj() or leaf.is_neg():
            there = leaf.detach().cuda()
        else:
            storage = leaf.untyped_storage().cuda()
            there = torch.empty(0, dtype=leaf.dtype, device="cuda")
            there.set_(storage, leaf.storage_offset(), leaf.shape, leaf.stride())
        return there.requires_grad_(leaf.requires_grad)

    return [
        SampleInput(move(s.input), args=tree_map(move, s.args), kwargs=tree_map(move, s.kwargs))
        for s in samples
    ]


def alike(there, here):
    """Did both devices get the same samples? Some entries have others, or more, on a GPU."""

    def look(leaf):
        if isinstance(leaf, torch.Tensor):
            return (leaf.shape, leaf.dtype, leaf.layout)
        return "device" if isinstance(leaf, torch.device) or leaf in ("cpu", "cuda") else repr(leaf)

    looks = [
        [[look(x) for x in tree_leaves((s.input, s.args, s.kwargs))] for s in samples]
        for samples in (there, here)
    ]
    return looks[0] == looks[1]


def tensors_of(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def bits(tensor):
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    tensor = tensor.clone(memory_format=torch.contiguous_format).reshape(-1)
    return tensor if tensor.is_quantized else tensor.view(torch.uint8)


def compare(what, there, here):
    """Raises Different unless both have the same meta data and the same bits."""
    for part in ("dtype", "shape", "layout", "is_sparse", "requires_grad"):
        a, b = getattr(there, part), getattr(here, part)
        if a != b:
            raise Different(f"{what}: {part} is {a}, on the CPU {b}")
    if there.layout == torch.sparse_coo:
        if there.is_coalesced() != here.is_coalesced():
            raise Different(f"{what}: coalesced on one device only")
        parts = [(t._indices(), t._values()) for t in (there.detach(), here.detach())]
        for name, a, b in zip(("indices", "values"), *parts, strict=True):
            compare(f"{what}'s {name}", a, b)
        return
    if there.layout != torch.strided:
        rows = there.layout in (torch.sparse_csr, torch.sparse_bsr)
        names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
        for name in (*names, "values"):
            a, b = getattr(there.detach(), name)(), getattr(here.detach(), name)()
            compare(f"{what}'s {name}", a, b)
        return
    if there.is_nested:
        pairs = zip(there.unbind(), here.unbind(), strict=True)
        for a, b in pairs:
            compare(what, a, b)
        return
    # A gradient is a view, or the sum of a view and nothing, as the formula has it: no promise.
    parts = ("stride", "is_conj", "is_neg", "storage_offset", *(() if "gradient" in what else ("_is_view",)))
    for part in parts:
        a, b = getattr(there, part)(), getattr(here, part)()
        if a != b:
            raise Different(f"{what}: {part} is {a}, on the CPU {b}")
    a, b = bits(there), bits(here)
    if not torch.equal(a, b):
        if there.dtype.is_floating_point or there.dtype.is_complex:
            wide = torch.complex128 if there.dtype.is_complex else torch.float64
            gap = (there.detach().cpu().to(wide) - here.detach().to(wide)).abs()
            raise Different(f"{what}: differs by up to {gap.nan_to_num().max().item():.3g}")
        raise Different(f"{what}: differs")


def compare_all(what, there, here):
    if len(there) != len(here):
        raise Different(f"{what}: {len(there)} tensors, on the CPU {len(here)}")
    for index, (a, b) in enumerate(zip(there, here, strict=True)):
        compare(f"{what} {index}", a, b)


def run(call):
    """The tensors that are fetched, or the error."""
    seed()
    try:
        return tensors_of(call()), None
    except Exception as error:
        return None, error


def gradients(outputs, inputs):
    """The gradients of the inputs for fixed random gradients of the outputs."""
    outputs = [t for t in outputs if t.requires_grad and t.grad_fn is not None]
    inputs = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not outputs or not inputs:
        return []
    generator = torch.Generator().manual_seed(3)
    given = []
    for t in outputs:
        dense = torch.randn(
            t.shape, dtype=torch.complex64 if t.is_complex() else torch.float32, generator=generator
        )
        grad = dense.to(t.dtype).to(t.device)
        if t.layout == torch.sparse_coo:
            grad = grad.to_sparse(t.sparse_dim())
        elif t.layout != torch.strided:
            grad = grad.to_sparse(layout=t.layout, blocksize=t.values().shape[1:3] or None)
        given.append(grad)
    seed()
    return [t for t in torch.autograd.grad(outputs, inputs, given, allow_unused=True) if t is not None]


def compare_gradients(outcome, there, here, inputs_there, inputs_here):
    try:
        expected = gradients(here, inputs_here)
    except Exception:
        return  # the CPU has none: nothing to compare with
    got = gradients(there, inputs_there)
    compare_all("gradient", got, expected)
    outcome.gradients += len(got)


def compare_variant(outcome, what, call_there, call_here):
    """Another form of the operator (in place, out=): what it writes is compared too."""
    here, error = run(call_here)
    if error is not None:
        return
    there, error = run(call_there)
    if error is not None:
        raise error
    compare_all(what, there, here)
    outcome.variants += 1


def plain(tree):
    return tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, tree)


def compare_variants(outcome, op, there, here, results):
    parts = [(s.input, tuple(s.args), dict(s.kwargs)) for s in (there, here)]
    if op.inplace_variant is not None and isinstance(there.input, torch.Tensor):

        def in_place(part):
            target, args, kwargs = plain(part)
            return lambda: (op.inplace_variant(target, *args, **kwargs), target)

        compare_variant(outcome, "in place", *(in_place(part) for part in parts))
    if op.supports_out and results and "out" not in here.kwargs:

        def into(part, device):
            target, args, kwargs = plain(part)
            out = [torch.zeros(t.shape, dtype=t.dtype, device=device) for t in results]
            return lambda: (op(target, *args, **kwargs, out=out[0] if len(out) == 1 else tuple(out)), out)

        if all(t.layout == torch.strided for t in results):
            compare_variant(outcome, "out=", into(parts[0], "cuda"), into(parts[1], "cpu"))


def compare_sample(outcome, op, there, here):
    leaves = [tensors_of((s.input, s.args, s.kwargs)) for s in (there, here)]
    compare_all("input", *leaves)
    if any(str(value).startswith("cuda") for value in tree_leaves(here.kwargs)):
        return
    results_here, error = run(lambda: op(here.input, *here.args, **here.kwargs))
    if error is not None:
        return  # the CPU refuses this sample
    results_there, error = run(lambda: op(there.input, *there.args, **there.kwargs))
    if error is not None:
        raise error
    if op.name in UNINITIALIZED:
        outcome.forwards += 1
        return
    for t in results_there:
        if t.device.type != "cuda" and "device" not in there.kwargs:
            raise Different(f"result on {t.device}")
    compare_all("result", results_there, results_here)
    outcome.forwards += 1
    compare_gradients(outcome, results_there, results_here, *leaves)
    compare_all("input afterwards", *leaves)
    compare_variants(outcome, op, there, here, results_here)


def examine(name, op, wanted):
    outcome = Outcome(name, "unsupported")
    dtype = dtype_for(op, wanted)
    if dtype is None:
        return outcome
    requires_grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    try:
        here = samples_of(op, "cpu", dtype, requires_grad)
    except Exception as error:
        outcome.why = f"no samples on the CPU: {error}"
        return outcome
    try:
        there = samples_of(op, "cuda", dtype, requires_grad)
        if not alike(there, here):
            there = moved(here)
        for pair in zip(there, here, strict=True):
            compare_sample(outcome, op, *pair)
    except Different as difference:
        outcome.state, outcome.why = "differs", str(difference)
    except Exception as error:
        outcome.state, outcome.why = "raises", f"{type(error).__name__}: {str(error).splitlines()[0][:240]}"
    else:
        outcome.state = "equal" if outcome.forwards else "unsupported"
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th entry")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME", help="and these entries")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print every outcome, one JSON object a line")
    parser.add_argument("--times", action="store_true", help="print the slowest entries")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    states = collections.Counter()
    totals = collections.Counter()
    slow = []
    for index, (name, op) in enumerate(entries().items()):
        left_out = index % arguments.every and name not in arguments.also
        if left_out or (arguments.only and name not in arguments.only):
            continue
        began = time.monotonic()
        outcome = examine(name, op, getattr(torch, arguments.dtype))
        slow.append((time.monotonic() - began, name))
        states[outcome.state] += 1
        totals.update(forwards=outcome.forwards, gradients=outcome.gradients, variants=outcome.variants)
        if arguments.json:
            print(json.dumps(dataclasses.asdict(outcome)), flush=True)
        elif outcome.state != "equal":
            print(f"{outcome.state:12} {name:44} {outcome.why}", flush=True)
    if arguments.times:
        for seconds, name in sorted(slow, reverse=True)[:30]:
            print(f"{seconds:8.2f} s  {name}")
    if not arguments.json:
        print(f"{arguments.dtype}: {dict(states)}; compared {dict(totals)}")


if __name__ == "__main__":
    main()
