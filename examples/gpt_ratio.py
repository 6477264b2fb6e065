# SPDX-License-Identifier: Apache-2.0
"""A tiny GPT: what each offload ratio moves in a step, and what the GPU then needs."""

import spillway
import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, TOKENS, BATCH, WORDS = 128, 4, 6, 64, 8, 256

spillway.use_allocator()  # before CUDA starts: freed blocks are reused while their copy still runs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, tokens, 3 * HEADS, WIDTH // HEADS).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(*heads.chunk(3, dim=1), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.blocks(x))


def train(ratio: float) -> tuple[float, int, int]:
    """The last of three steps: its loss, the bytes that moved and the peak."""
    torch.manual_seed(0)
    model = GPT().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text = torch.randint(WORDS, (BATCH, TOKENS + 1), device="cuda")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        with spillway.CPUOffload(offload_ratio=ratio, tag=f"ratio {ratio}"):
            logits = model(text[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = spillway.stats()["tags"][f"ratio {ratio}"]["last"]["offloaded_bytes"]
    return loss.item(), moved, torch.cuda.max_memory_allocated()


print("ratio   moved MiB   peak MiB   loss")
for ratio in (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1):
    loss, moved, peak = train(ratio)
    print(f"{ratio:5}   {moved / 2**20:9.2f}   {peak / 2**20:8.2f}   {loss:.6f}")
