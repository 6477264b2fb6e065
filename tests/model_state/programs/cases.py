# SPDX-License-Identifier: Apache-2.0
"""The cases of a program. Each is a user's script: it returns what has to be equal with and without Spillway,
such as losses, models and optimizers."""

import hashlib
import os
import sys
import traceback

import torch

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def digest(*values):
    """Of the bytes of all tensors in these values."""
    into = hashlib.sha256()
    for value in values:
        _add(into, value)
    return into.hexdigest()[:16]


def _add(into, value):
    if isinstance(value, torch.nn.Module):
        _add(into, value.state_dict())
        _add(into, [each.grad for each in value.parameters()])
    elif isinstance(value, torch.optim.Optimizer):
        _add(into, value.state_dict())
    elif isinstance(value, torch.Tensor):
        _add_tensor(into, value.detach())
    elif isinstance(value, dict):
        for key in value:
            into.update(repr(key).encode())
            _add(into, value[key])
    elif isinstance(value, (list, tuple)):
        for each in value:
            _add(into, each)
    elif isinstance(value, bytes):
        into.update(value)
    else:
        into.update(repr(value).encode())


def _add_tensor(into, tensor):
    into.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce()
        _add_tensor(into, tensor.indices())
        tensor = tensor.values()
    flat = tensor.cpu().contiguous().reshape(-1)
    into.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def managed_stats():
    """Of this process; None in a plain run."""
    if not os.environ.get("SPILLWAY_BUDGET") and not os.environ.get("OFFLOAD_MODELS"):
        return None
    import spillway

    return spillway.stats()["model_state"]


def run(name, function):
    before = managed_stats()
    torch.manual_seed(0)
    try:
        result = function()
        line = digest(*result) if isinstance(result, tuple) else digest(result)
    except Exception as error:
        traceback.print_exc()
        line = f"raised {type(error).__name__}: {error}".replace("\n", " ")
    print("case:", name, line, flush=True)
    if before is not None:
        fetched = managed_stats()["fetched_bytes"] - before["fetched_bytes"]
        print("fetched:", name, fetched, file=sys.stderr, flush=True)


def main():
    """Runs the cases that the command line names, or all."""
    for name in sys.argv[1:] or CASES:
        run(name, CASES[name])
