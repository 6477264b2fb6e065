# SPDX-License-Identifier: Apache-2.0
"""A decoder of Llama's shape, its training step, and the bytes that its saved activations must have."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, inner, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm_attention, self.norm_mlp = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, turn):
        batch, length, _ = x.shape
        y = self.norm_attention(x)
        query = rotated(self.query(y).view(batch, length, self.heads, self.size), *turn)
        key = rotated(self.key(y).view(batch, length, self.groups, self.size), *turn)
        value = self.value(y).view(batch, length, self.groups, self.size)
        attended = F.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)), is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x, cos, sin):
    """Pairs of neighbors turned by the angle of their place; x is (batch, length, heads, size)."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Llama(nn.Module):
    def __init__(self, layers, width=4096, inner=14336, heads=32, groups=8, vocabulary=32000):
        super().__init__()
        self.size, self.vocabulary = width // heads, vocabulary
        self.token = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner, heads, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens)
        places = torch.arange(tokens.shape[1], device=x.device).float()
        steps = 1e4 ** (-torch.arange(0, self.size, 2, device=x.device).float() / self.size)
        angles = torch.outer(places, steps)[None, :, None]
        turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, turn)
        return self.head(self.norm(x))


def made(layers, **options):
    """On the device, in bfloat16."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama(layers, **options)
    torch.set_default_dtype(torch.float32)
    return model


def train(model, batch, length, steps):
    """Of the last step: bytes before it, of activations, of gradients and at its peak; its time in ms."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in range(steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.reset_peak_memory_stats()
        start.record()
        tokens = torch.randint(0, model.vocabulary, (batch, length), device="cuda")
        targets = torch.randint(0, model.vocabulary, (batch * length,), device="cuda")
        before = torch.cuda.memory_allocated()
        loss = F.cross_entropy(model(tokens).view(-1, model.vocabulary), targets)
        saved = torch.cuda.memory_allocated() - before
        loss.backward()
        gradients = sum(each.grad.untyped_storage().nbytes() for each in model.parameters())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        end.synchronize()
    return {
        "before": before,
        "saved": saved,
        "gradients": gradients,
        "peak": torch.cuda.max_memory_allocated(),
        "loss": loss.item(),
        "ms": start.elapsed_time(end),
    }


def rounded(size):
    return -(-size // 512) * 512


def saved_bytes(batch, length, layers, width=4096, inner=14336, heads=32, groups=8, vocabulary=32000):
    """What autograd keeps of the forward pass in bfloat16, and the loss.

    In each layer: six tensors of the model's width, key and value, four of the inner width; the norms'
    inverse deviations and attention's log-sum-exp in float32; the seed and the offset of attention's random
    numbers. Besides: what the head's norm and product need, the logarithms of the probabilities, the tables
    of angles.
    """
    tokens, size = batch * length, width // heads
    layer = 6 * rounded(tokens * width * 2) + 2 * rounded(tokens * groups * size * 2)
    layer += 4 * rounded(tokens * inner * 2)
    layer += 2 * rounded(tokens * 4) + rounded(tokens * heads * 4) + 2 * rounded(8)
    head = 2 * rounded(tokens * width * 2) + rounded(tokens * 4) + rounded(tokens * vocabulary * 2)
    return layers * layer + head + 2 * rounded(length * size) + rounded(2)
