# SPDX-License-Identifier: Apache-2.0
"""Kernels of inductor's code: they get addresses of model state, and run around PyTorch's operators."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from spillway._after_import import after_import
from spillway._load import glue

__all__ = ["start"]


@functools.cache
def start() -> None:
    """From now on, model state that such a kernel uses is on the GPU while it is launched, and need not be
    afterwards: as for an operator."""
    after_import("torch._inductor.runtime.triton_heuristics", _guard)


def _guard(module: ModuleType) -> None:
    original = module.CachingAutotuner.run

    @functools.wraps(original)
    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        used = glue().managed_among(arguments)
        if not used:
            return original(self, *arguments, **options)
        names = self.fn.arg_names
        written = [at < len(names) and names[at] in self.mutated_arg_names for at in used]
        launch = glue().KernelLaunch([arguments[at] for at in used], written)
        try:
            return original(self, *arguments, **options)
        finally:
            launch.end()

    module.CachingAutotuner.run = run
