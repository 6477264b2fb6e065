# SPDX-License-Identifier: Apache-2.0
"""Custom autograd functions that are declared recomputable, each with another property."""

import spillway
import torch
from torch.autograd.function import once_differentiable


class Swish(torch.autograd.Function):
    """Saves its input, an intermediate result and its result."""

    @staticmethod
    def forward(ctx, x, slope=1.0):
        gate = torch.sigmoid(x * slope)
        y = x * gate
        ctx.save_for_backward(x, None, gate, y)
        ctx.slope = slope
        return y

    @staticmethod
    def backward(ctx, grad):
        _, _, gate, y = ctx.saved_tensors
        return grad * (gate + ctx.slope * y * (1 - gate)), None


class Normalized(torch.autograd.Function):
    """As fused kernels are written: fills a flat tensor and returns views of it."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        flat = x.reshape(-1, x.shape[-1])
        result = torch.empty_like(flat)
        scale = torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
        torch.mul(flat * scale, weight, out=result)
        ctx.save_for_backward(x, weight, scale)
        return result.view(x.shape), flat.abs()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        x, weight, scale = ctx.saved_tensors
        return grad * weight * scale.view(*x.shape[:-1], 1), (grad * x).flatten(0, -2).sum(0), None


class Cube(torch.autograd.Function):
    """Its context is set up separately."""

    @staticmethod
    def forward(x, factor=2.0):
        square = x * x
        return square * x * factor, square

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad, _):
        return 3 * grad * ctx.saved_tensors[1] * ctx.factor, None


class Chosen(torch.autograd.Function):
    """What it saves depends on which gradients are needed."""

    @staticmethod
    def forward(ctx, x, w):
        saved = []
        if w.requires_grad:
            saved.append(x.exp())
        if ctx.needs_input_grad[0]:
            saved.append(w.exp())
        ctx.save_for_backward(x, w, *saved)
        return x.exp() * w.exp()

    @staticmethod
    def backward(ctx, grad):
        x, w, *saved = ctx.saved_tensors
        return grad * x.exp() * w.exp(), grad * saved[0] * saved[-1] if ctx.needs_input_grad[1] else None


class Cast(torch.autograd.Function):
    """Computes in autocast's type."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, w):
        product = x @ w
        ctx.save_for_backward(x, w, product.float())
        return product.sin()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        x, w, product = ctx.saved_tensors
        grad = grad * product.cos()
        return grad @ w.t().to(grad.dtype), x.t().to(grad.dtype) @ grad


class CastInputs(Cast):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x, w):
        product = x @ w
        ctx.save_for_backward(x, w, product.float())
        return product.sin()


class Dropped(torch.autograd.Function):
    """Draws random numbers."""

    @staticmethod
    def forward(ctx, x, share):
        mask = torch.rand_like(x) > share
        ctx.save_for_backward(x, mask, mask * x)
        return mask * x + 0 * torch.rand(x.shape[0], 1).cuda()

    @staticmethod
    def backward(ctx, grad):
        _, mask, dropped = ctx.saved_tensors
        return grad * mask + dropped, None


class WithGradient(torch.autograd.Function):
    """Computes its gradient in its forward."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = Swish.apply(x.sin()).exp().sum()
            (grad,) = torch.autograd.grad(y, [x])
        ctx.save_for_backward(x, grad)
        return y.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1]


class Doubled(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        before = x.clone()
        ctx.mark_dirty(x)
        ctx.save_for_backward(before)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad + 0 * ctx.saved_tensors[0]


class Called(torch.autograd.Function):
    """Its argument is a function."""

    @staticmethod
    def forward(ctx, x, function):
        y = function(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1], None


class Inherited(Swish):
    pass


for each in (Swish, Normalized, Cube, Chosen, Cast, CastInputs, Dropped, WithGradient, Doubled, Called):
    assert spillway.recomputable(each, cheap=True) is each
