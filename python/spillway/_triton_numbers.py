# SPDX-License-Identifier: Apache-2.0
"""Numbers that NumPy lacks, in triton's interpreter.

It keeps bfloat16 as integers and would compute on those, and loses the carry where a number is rounded to
8 bits. Here operators of bfloat16 compute in float32 and round their result, as on a GPU, and PyTorch rounds
to 8 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

# Operations that move bits of any type, or convert them.
# fmt: off
_MOVES = {
    "load", "store", "masked_load", "masked_store", "tensor_pointer_load", "tensor_pointer_store",
    "descriptor_load", "descriptor_store", "descriptor_gather", "descriptor_scatter", "select", "reshape",
    "trans", "expand_dims", "broadcast", "cat", "join", "split", "splat", "unsplat", "gather", "bitcast",
    "int_to_ptr", "ptr_to_int", "fp_to_fp", "fp_ext", "fabs", "atomic_cas", "addptr", "make_block_ptr",
    "make_tensor_descriptor", "advance", "and", "or", "xor",
}
# fmt: on


def _scalar(value: Any) -> Any:
    """The type of a handle's numbers; None for other values."""
    return (
        value.dtype.scalar if isinstance(value, TensorHandle) and isinstance(value.dtype, tl.dtype) else None
    )


def _widened(handle: TensorHandle) -> TensorHandle:
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _rounded(handle: TensorHandle) -> TensorHandle:
    numbers = torch.from_numpy(np.array(handle.data, dtype=np.float32))
    return TensorHandle(numbers.bfloat16().view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


def _in_float32(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        types = [_scalar(each) for each in arguments]
        if name != "dot" and any(each is not None and each.is_fp8() for each in types):
            raise NotImplementedError(
                f"Triton's interpreter does not implement {name} for 8-bit floating point"
            )
        to_bfloat16 = any(isinstance(each, tl.dtype) and each.scalar == tl.bfloat16 for each in arguments)
        if not to_bfloat16 and tl.bfloat16 not in types:
            return method(self, *arguments, **options)
        if name == "atomic_rmw":
            raise NotImplementedError(
                "Triton's interpreter does not implement atomic operations for bfloat16"
            )
        wide = [
            _widened(each)
            if of == tl.bfloat16
            else tl.float32
            if isinstance(each, tl.dtype) and each.scalar == tl.bfloat16
            else each
            for each, of in zip(arguments, types, strict=True)
        ]
        result = method(self, *wide, **options)
        floats = [each for each in types if each is not None and each.is_floating()]
        narrow = to_bfloat16 or all(each == tl.bfloat16 for each in floats)
        if narrow and isinstance(result, TensorHandle) and result.data.dtype == np.float32:
            return _rounded(result)
        return result

    return call


def _reduce_in_float32(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def call(self: Any, given: Any) -> Any:
        several = isinstance(given, tuple)
        inputs: Sequence[Any] = given if several else (given,)
        narrow = [each.dtype.scalar == tl.bfloat16 for each in inputs]
        if not any(narrow):
            return apply(self, given)
        wide = tuple(
            _typed(_widened(each.handle), each.shape) if is_narrow else each
            for each, is_narrow in zip(inputs, narrow, strict=True)
        )
        results = tuple(
            _typed(_rounded(each.handle), each.shape) if is_narrow and each.dtype == tl.float32 else each
            for each, is_narrow in zip(apply(self, wide), narrow, strict=False)
        )
        return results if several else results[0]

    return call


def _typed(handle: TensorHandle, shape: Any) -> Any:
    return tl.tensor(handle, tl.block_type(handle.dtype, list(shape)) if len(shape) else handle.dtype)


_EIGHT_BITS = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}


def _to_eight_bits(convert: Callable[..., Any]) -> Callable[..., Any]:
    """To the nearest; what is too large becomes the largest, as the GPU's instruction has it."""

    @functools.wraps(convert)
    def call(self: Any, source: Any, to: Any, rounding: Any) -> Any:
        kind = _EIGHT_BITS.get(to.scalar)
        of = _scalar(source)
        if kind is None or of.is_fp8() or rounding == interpreter._ir.ROUNDING_MODE.RTZ:
            return convert(self, source, to, rounding)
        wide = _widened(source) if of == tl.bfloat16 else source
        largest = torch.finfo(kind).max
        numbers = torch.from_numpy(np.array(wide.data, dtype=np.float32)).clamp(-largest, largest)
        return TensorHandle(numbers.to(kind).view(torch.uint8).numpy(), to.scalar)

    return call


def install() -> None:
    """Changes the interpreter's classes; once."""
    builder = interpreter.InterpreterBuilder
    builder.create_fp_to_fp = _to_eight_bits(builder.create_fp_to_fp)
    for attribute, method in list(vars(builder).items()):
        name = attribute.removeprefix("create_")
        if name != attribute and name not in _MOVES and callable(method):
            setattr(builder, attribute, _in_float32(name, method))
    reduction = interpreter.ReduceScanOpInterface
    reduction.apply = _reduce_in_float32(reduction.apply)
