# SPDX-License-Identifier: Apache-2.0
"""Substitutes on the emulated GPU for parts of PyTorch: the compiler, CUPTI, Triton and NCCL.

Applied by `_autoload` where the GPU is emulated, and nowhere else. Each substitution is announced once, in a
line on stderr. Modules are patched when they are imported; none is imported for a patch.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway import _emulated_nccl, _emulated_triton, _lazy_dynamo
from spillway._after_import import after_import
from spillway._substitutions import announce
from spillway.emulator import is_dry_run


def apply(torch: ModuleType) -> None:
    _lazy_dynamo.install(torch)
    wrapper = torch._TorchCompileInductorWrapper
    wrapper.__call__ = _compile_eagerly(wrapper.__call__)
    after_import("torch._dynamo.backends.inductor", _patch_inductor_backend)
    after_import("torch._inductor", _patch_inductor)
    after_import("triton.runtime.autotuner", _emulated_triton.patch)  # the last of triton.runtime's modules
    after_import("triton.runtime.interpreter", _emulated_triton.patch_interpreter)
    after_import("torch.distributed.distributed_c10d", _emulated_nccl.patch_groups)
    _emulated_nccl.patch_devices(torch)
    _patch_profiler(torch.autograd.profiler)
    if is_dry_run():
        from spillway import _dry_checkpoints, _dry_time

        _dry_time.start()
        after_import("safetensors", _dry_checkpoints.patch)
        _dry_checkpoints.patch_load(torch)
    atexit.register(_let_autograd_end)


def _let_autograd_end() -> None:
    """PyTorch's threads free what a backward pass has left after it has returned, Python objects too: one
    that wants the interpreter's lock when that is ending aborts the process. After a step on a GPU there is
    time for it, but not after one that computes nothing."""
    time.sleep(0.05)


# --- torch.compile


def _on_gpu(inputs: Any) -> bool:
    """Whether a graph with these inputs may need code for a GPU. One without any may make tensors itself."""
    import torch

    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    return not tensors or any(tensor.is_cuda for tensor in tensors)


def _aot_eager(model: Any, inputs: Any, options: dict[str, Any]) -> Any:
    """`options`: of Inductor. What it would capture into a CUDA graph is known as such, but not captured."""
    from torch._dynamo.backends.debugging import aot_eager
    from torch._inductor import config

    if is_dry_run():
        from spillway import _dry_compile

        announce("torch.compile is modeled: each graph that Inductor fuses is one kernel")
        compiler: Callable[[Any, Any], Callable[..., Any]] = _dry_compile.backend
    else:
        announce("torch.compile uses backend aot_eager: the emulated GPU cannot run Inductor's code")
        compiler = aot_eager
    captured = options.get("triton.cudagraphs", config.triton.cudagraphs)
    with config.patch({"triton.cudagraphs": captured}):
        return compiler(model, inputs)


def _compile_eagerly(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original` for graphs on the CPU, aot_eager for those on the GPU."""

    @functools.wraps(original)
    def call(self: Any, model: Any, inputs: Any) -> Any:
        if not _on_gpu(inputs):
            return original(self, model, inputs)
        return _aot_eager(model, inputs, self.config)

    return call


def _patch_inductor_backend(module: Any) -> None:
    from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend

    original = module.inductor

    @functools.wraps(original)
    def inductor(model: Any, inputs: Any, **options: Any) -> Any:
        if not _on_gpu(inputs):
            return original(model, inputs, **options)
        return _aot_eager(model, inputs, options.get("config_patches") or {})

    _COMPILER_FNS.pop("inductor", None)
    module.inductor = register_backend(inductor)


def _patch_inductor(module: Any) -> None:
    def refuse(exported: Any, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "torch._inductor.aoti_compile_and_package: the emulated GPU cannot run compiled code. "
            "Run the model eagerly."
        )

    module.aoti_compile_and_package = refuse


# --- torch.profiler


def _patch_profiler(module: Any) -> None:
    """CUPTI does not know the emulated GPU. Where it is not supported operators are timed by events."""
    original = module._supported_activities
    module._supported_activities = lambda: original() - {module.ProfilerActivity.CUDA}
    begin = module.profile.__init__

    @functools.wraps(begin)
    def with_cpu(self: Any, *arguments: Any, **options: Any) -> None:
        if options.get("use_device") == "cuda":
            options["use_cpu"] = True  # whose operators the events are about
        begin(self, *arguments, **options)

    module.profile.__init__ = with_cpu
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # no warnings that CUPTI is not there
