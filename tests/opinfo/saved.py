# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operator database inside regions and checkpoints: gradients must be plain's, bit for bit.

As a program it prints one JSON object for each operator whose gradients differ or that raises, and the
counts: `saved.py [--mode MODE…] [--dtype float32] [--only NAME…] [--every N]`. It needs the emulated GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import warnings

import spillway
import torch
from census import bits, entries, gradients, run, seed, tensors_of
from torch.utils._pytree import tree_map

MOST_SAMPLES = 4
#: Their results depend on what was in memory, or on earlier calls.
NOT_REPEATABLE = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def everything(min_offload_size=0):
    return spillway.compat.OffloadActivations(min_offload_size=min_offload_size)


@contextlib.contextmanager
def recomputed():
    with everything(), spillway.recompute():
        yield


def in_region(region):
    def call(function, *args, **kwargs):
        with region():
            return function(*args, **kwargs)

    return call


def checkpointed(offload_to_cpu):
    def call(function, given, *args, **kwargs):
        # Statistics among the other arguments are changed in place, which a checkpoint's own must not be.
        return spillway.checkpoint(
            lambda x: function(x, *args, **kwargs), given, offload_to_cpu=offload_to_cpu
        )

    return call


#: Each calls a function as a program does that uses Spillway in this way.
MODES = {
    "offload": in_region(everything),
    "recompute": in_region(recomputed),
    "checkpoint": checkpointed(offload_to_cpu=False),
    "checkpoint on the host": checkpointed(offload_to_cpu=True),
}


def not_leaves(tree):
    """The same tensors as results of an operator: parameters are kept and not informative."""
    return tree_map(lambda t: t * 1 if isinstance(t, torch.Tensor) and t.requires_grad else t, tree)


def sampled(op, dtype):
    """Samples whose gradients can be compared; none where the operator has no gradients in this type."""
    if not op.supports_autograd or dtype not in op.dtypesIfCUDA or op.name in NOT_REPEATABLE:
        return []
    seed()
    samples = op.sample_inputs("cuda", dtype, requires_grad=True)
    return list(itertools.islice(samples, MOST_SAMPLES))


def gradients_in(call, op, sample):
    """Gradients of a sample's leaves, or the error."""
    leaves = tensors_of((sample.input, sample.args, sample.kwargs))

    def forward():
        args, kwargs = not_leaves((sample.args, sample.kwargs))
        return call(op, not_leaves(sample.input), *args, **kwargs)

    outputs, error = run(forward)
    if error is not None:
        return None, error
    try:
        return gradients(outputs, leaves), None
    except Exception as error:
        return None, error


def same(left, right):
    return len(left) == len(right) and all(
        a.layout == b.layout
        and a.shape == b.shape
        and (a.layout != torch.strided or torch.equal(bits(a), bits(b)))
        for a, b in zip(left, right, strict=True)
    )


def plainly(function, *args, **kwargs):
    return function(*args, **kwargs)


def examine(op, modes, dtype):
    """What is wrong by mode, and how many gradients were compared in each."""
    wrong, compared = {}, 0
    try:
        samples = sampled(op, dtype)
    except Exception:
        return wrong, compared
    for sample in samples:
        expected, error = gradients_in(plainly, op, sample)
        if error is not None or not expected:
            continue
        again, _ = gradients_in(plainly, op, sample)
        if again is None or not same(expected, again):
            continue
        compared += len(expected)
        for mode in modes:
            got, error = gradients_in(MODES[mode], op, sample)
            if error is not None:
                wrong.setdefault(mode, f"raises {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            elif not same(got, expected):
                wrong.setdefault(mode, "differs")
    return wrong, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", nargs="*", default=list(MODES), choices=list(MODES))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th entry")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    operators, total = 0, 0
    for index, (name, op) in enumerate(entries().items()):
        if index % arguments.every or (arguments.only and name not in arguments.only):
            continue
        wrong, compared = examine(op, arguments.mode, getattr(torch, arguments.dtype))
        operators += compared > 0
        total += compared
        if wrong:
            print(json.dumps({"name": name, "wrong": wrong}), flush=True)
    print(json.dumps({"operators": operators, "gradients": total}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
