# SPDX-License-Identifier: Apache-2.0
"""What each program of compiled cases prints about a case."""

import hashlib

import torch


def begin():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)


def hash_of(losses, model):
    """Of all bits."""
    digest = hashlib.sha256()
    for each in (*losses, *model.state_dict().values()):
        digest.update(each.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def counted():
    counters = torch._dynamo.utils.counters
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiled": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
        "handles": handles(),
        "cannot_help": cannot_help(),
    }


def handles():
    """Of saved tensors, which hold what is on the host."""
    import spillway

    return spillway.stats()["saved_tensor_handles"]


def cannot_help():
    """Why offloading cannot help this process, as far as it is known."""
    import spillway

    return (spillway.stats()["cannot_help"] or {}).get("reason")
