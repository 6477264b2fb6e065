# SPDX-License-Identifier: Apache-2.0
"""The other systems, each imported as it is published, or the reason why it cannot be."""

from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Peer:
    """A system's module; `reason` instead where importing it failed."""

    package: str
    module: Any
    reason: str


def _load(package: str, module: str) -> Peer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Peer(package, importlib.import_module(module), "")
        except Exception as error:  # whatever a package does when it is imported
            return Peer(package, None, f"{type(error).__name__}: {error}".splitlines()[0])


def torchtune() -> Peer:
    return _load("torchtune", "torchtune.training._activation_offloading")


def trl() -> Peer:
    return _load("trl", "trl.models.activation_offloading")


def fairscale() -> Peer:
    return _load("fairscale", "fairscale.experimental.nn.offload")


ALL: dict[str, Callable[[], Peer]] = {"torchtune": torchtune, "trl": trl, "fairscale": fairscale}


def report(found: Any) -> NoReturn:
    """Prints what a probe has found and ends its process, at once: what TRL's manager has given autograd to
    call is freed on autograd's thread, and now and then that aborts a process that ends by itself."""
    print(json.dumps(found), flush=True)
    os._exit(0)
