# SPDX-License-Identifier: Apache-2.0
"""Runs kernels in triton's interpreter, as `TRITON_INTERPRET=1` does, but on the device's own bytes: the host
can address the emulated device's memory. Functions that were decorated for a GPU stay what they are."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice as any_libdevice
from triton.language.extra.cuda import libdevice
from triton.runtime import interpreter

from spillway import _triton_numbers

_running = threading.RLock()  # the interpreter has one grid for the whole process
_scopes: list[_Scope] = []


class _Scope:
    """Triton's language as the interpreter has it, while a kernel runs."""

    def __init__(self) -> None:
        self._restore: list[Callable[[], Any]] = []
        self._seen: set[int] = set()

    def begin(self) -> None:
        language = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        self._restore.append(language.restore)
        tl.tensor.__index__ = _index
        tl.range = _counted(tl.range)
        for module in (libdevice, any_libdevice):
            self._replace(module.__dict__)

    def _replace(self, names: dict[str, Any]) -> None:
        """Builtins in a module get the interpreter's semantics."""
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        if "range" not in names:
            self._restore.append(functools.partial(names.pop, "range", None))
            names["range"] = _counted(range)
        for name, value in list(names.items()):
            if not isinstance(value, FunctionType):
                continue
            if value.__module__ == any_libdevice.__name__:  # stands for that of the device's backend
                builtin = getattr(_LIBDEVICE, value.__name__, None)
            else:
                builtin = value if tl.core.is_builtin(value) else None
            if builtin is not None:
                self._restore.append(functools.partial(names.__setitem__, name, value))
                names[name] = _with_semantic(builtin)

    def function(self, fn: Any) -> Any:
        """The function as the interpreter calls it."""
        self._replace(fn.__globals__)
        return interpreter.InterpretedFunction(fn).rewrite()

    def restore(self) -> None:
        for each in reversed(self._restore):
            each()


def _index(scalar: Any) -> int:
    """NumPy makes no number of an array of one dimension any more."""
    return int(scalar.handle.data.item())


class _Counter(int):
    """A loop's counter: a Python number that converts like a Triton one."""

    def to(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        return interpreter._implicit_cvt(int(self)).to(kind, *arguments, **options)


def _counting(name: str) -> Callable[..., Any]:
    operator = getattr(int, name)

    def call(self: Any, other: Any) -> Any:
        result = operator(self, other)
        return _Counter(result) if isinstance(result, int) else result

    return call


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod"):
    setattr(_Counter, f"__{_name}__", _counting(f"__{_name}__"))


def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
    def loop(*arguments: Any, **options: Any) -> Iterator[_Counter]:
        return map(_Counter, original(*arguments, **options))

    return loop


def _given(value: Any) -> Any:
    """An argument that is no constant. A float is a tensor of no dimension, as on a GPU."""
    if isinstance(value, float):
        return tl.tensor(
            interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32
        )
    return interpreter._implicit_cvt(value)


_LIBDEVICE = SimpleNamespace(**libdevice.__dict__)  # as it is while no kernel runs


def _with_semantic(builtin: FunctionType) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        return builtin(*arguments, **{**options, "_semantic": interpreter.interpreter_semantic})

    return call


@contextlib.contextmanager
def _scope() -> Iterator[_Scope]:
    with _running:
        scope = _Scope()
        try:
            _scopes.append(scope)
            scope.begin()
            yield scope
        finally:
            scope.restore()
            _scopes.remove(scope)


def is_running() -> bool:
    return bool(_scopes)


def call(function: Any, *arguments: Any, **options: Any) -> Any:
    """A JITFunction that a kernel calls."""
    return _scopes[-1].function(function.fn)(*arguments, **options)


def run(kernel: Any, name: str, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
    """Errors: NotImplementedError with the kernel's name, from what the interpreter raised."""
    if kernel.is_gluon():
        raise NotImplementedError(
            f"{name}: the emulated GPU does not run Gluon kernels. Call a PyTorch implementation."
        )
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    with _scope() as scope:
        try:
            function = scope.function(kernel.fn)
            given = {key: value if key in constants else _given(value) for key, value in arguments.items()}
            builder = interpreter.interpreter_builder
            builder.set_grid_dim(*grid)
            for position in np.ndindex(*grid):
                builder.set_grid_idx(*position)
                function(**given)
        except Exception as error:
            raise NotImplementedError(
                f"{name}: failed in Triton's interpreter, which the emulated GPU uses ({error!r}). "
                "Call a PyTorch implementation."
            ) from error


# --- CUDA's mathematical functions (libdevice), by those of PyTorch

# fmt: off
_NAMES = {
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log", "log10", "log1p",
    "log2", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
}
# fmt: on
_ALIASES = {"fabs": "abs", "rint": "round", "nearbyint": "round", "fmax": "fmax", "fmin": "fmin"}


def _operator(symbol: str) -> Callable[..., torch.Tensor] | None:
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for each in (name, name.removesuffix("f"), name.removeprefix("f").removesuffix("_rn")):
        if each in _NAMES:
            return getattr(torch, each)  # type: ignore[no-any-return]
        if each in _ALIASES:
            return getattr(torch, _ALIASES[each])  # type: ignore[no-any-return]
    return None


def _extern(self: Any, library: str, path: str, symbol: str, arguments: Any, result: Any, pure: bool) -> Any:
    operator = _operator(symbol)
    if operator is None:
        raise NotImplementedError(f"Triton's interpreter does not implement {symbol}")
    values = [torch.from_numpy(np.ascontiguousarray(each.data)) for each in arguments]
    return interpreter.TensorHandle(operator(*values).numpy(), getattr(result, "scalar", result))


interpreter.InterpreterBuilder.create_extern_elementwise = _extern
_triton_numbers.install()
