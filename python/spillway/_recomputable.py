# SPDX-License-Identifier: Apache-2.0
"""Custom autograd functions whose results may be recomputed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from spillway._arguments import flag

if TYPE_CHECKING:
    import torch

__all__ = ["recomputable"]

_Function = TypeVar("_Function", bound="type[torch.autograd.Function]")


@overload
def recomputable(function: _Function, /, *, cheap: bool = False) -> _Function: ...
@overload
def recomputable(*, cheap: bool = False) -> Callable[[_Function], _Function]: ...
def recomputable(function: Any = None, /, *, cheap: bool = False) -> Any:
    """Declare that a custom autograd function may be recomputed.

    As a decorator of the class, or as a call on a class of another library::

        @spillway.recomputable
        class MyFunction(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight): ...

        spillway.recomputable(other_library.ItsFunction)

    Its results, and the tensors that it computes and passes to ``ctx.save_for_backward``, are then recomputed
    where that pays: under a budget, and with ``cheap=True`` in ``spillway.recompute()`` too. For that,
    forward runs once more, without a graph, on the same bits.

    You state that its forward

    * gives the same bits for the same arguments. Random numbers of PyTorch's default generators, and autocast
      (``torch.amp.custom_fwd`` too), are those of the first run;
    * depends on its arguments alone, and on nothing else that changes between forward and backward pass;
    * has no effect besides its results and what it sets on ``ctx``. It may be called again with another
      object as ``ctx``, which has ``needs_input_grad``, and with plain tensors of the same values, shapes,
      strides and ``requires_grad`` in place of parameters.

    A call's tensors are kept if it has changed an argument in place, and if an argument that is not a tensor
    is anything but a number, a string, an enumeration's member, a type, device, layout or memory format of
    PyTorch, ``None``, or a tuple or list of these. A subclass must be decorated itself.

    Raises TypeError if it is not a subclass of ``torch.autograd.Function`` that defines a forward.
    """
    flag("cheap", cheap)
    if function is None:
        return lambda decorated: recomputable(decorated, cheap=cheap)
    import torch

    base = torch.autograd.Function
    if not (
        isinstance(function, type) and issubclass(function, base) and function.forward is not base.forward
    ):
        raise TypeError(
            f"function must be a subclass of torch.autograd.Function with a forward, not {function!r}. "
            "Decorate the class."
        )
    from spillway._repeated_function import record_calls

    record_calls(function, cheap)
    return function
