# SPDX-License-Identifier: Apache-2.0
"""usage: training.py [--eager] [CASE ...]

Trains compiled models, and prints a JSON object per case: a hash of all losses and parameters, the bytes
after the forward pass and at the peak of the last step, and what the compiler counted. With --eager nothing
is compiled.
"""

import json
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from measured import begin, counted, hash_of
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 3
CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


def block():
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.body = block()

    def forward(self, x):
        return x + self.body(self.norm(x))


class Attention(nn.Module):
    """Saves views of one storage, and generator states."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.qkv = nn.Linear(256, 768)
        self.out = nn.Linear(256, 256)

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (4, 64)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.dropout(self.out(attended.transpose(1, 2).flatten(2)), 0.1)


class GPT(nn.Module):
    """As nanoGPT: its head is its embedding."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(512, 256), nn.Embedding(128, 256)
        self.blocks = nn.Sequential(*(nn.Sequential(Attention(), MLP()) for _ in range(3)))
        self.head = nn.Linear(256, 512, bias=False)
        self.token.weight = self.head.weight

    def forward(self, words, following):
        x = self.token(words) + self.place(torch.arange(words.shape[1], device=words.device))
        return F.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), following.flatten())


def tokens(step):
    return torch.randn(8, 128, 256, generator=torch.Generator().manual_seed(step)).cuda()


def words(step):
    return torch.randint(512, (8, 129), generator=torch.Generator().manual_seed(step)).cuda()


def gpt_of(length):
    model = GPT().cuda()
    run = torch.compile(model)

    def loss(step):
        found = words(step)
        return run(found[:, : length(step)], found[:, 1 : length(step) + 1])

    return model, loss, torch.optim.SGD(model.parameters(), lr=0.1)


def square(run, step):
    return run(tokens(step)).square().mean()


@case
def gpt():
    return gpt_of(lambda step: 128)


@case
def whole():
    model = nn.Sequential(*(block() for _ in range(6))).cuda()
    run = torch.compile(model)
    return model, lambda step: square(run, step)


@case
def each_block():
    model = nn.Sequential(*(block() for _ in range(6))).cuda()
    run = nn.Sequential(*(torch.compile(each) for each in model))
    return model, lambda step: square(run, step)


@case
def attention():
    model = nn.Sequential(*(Attention() for _ in range(4))).cuda()
    run = torch.compile(model)
    return model, lambda step: square(run, step)


@case
def under_autocast():
    model = nn.Sequential(*(Attention() for _ in range(4))).cuda()
    run = torch.compile(model)

    def loss(step):
        with torch.autocast("cuda", torch.bfloat16):
            return square(run, step)

    return model, loss


@case
def graph_breaks():
    model = nn.ModuleList(block() for _ in range(4)).cuda()

    @torch.compile
    def run(x):
        x = model[1](model[0](x))
        torch._dynamo.graph_break()
        return model[3](model[2](x))

    return model, lambda step: square(run, step)


@case
def lengths():
    """Of several sequences: the second one makes their dimension symbolic."""
    return gpt_of(lambda step: 128 - 16 * step)


@case
def checkpointed_inside():
    model = nn.ModuleList(Attention() for _ in range(4)).cuda()

    @torch.compile
    def run(x):
        for each in model:
            x = checkpoint(each, x, use_reentrant=False)
        return x

    return model, lambda step: square(run, step)


@case
def checkpointed_outside():
    model = nn.ModuleList(Attention() for _ in range(4)).cuda()
    compiled = [torch.compile(each) for each in model]

    def loss(step):
        x = tokens(step)
        for each in compiled:
            x = checkpoint(each, x, use_reentrant=False)
        return x.square().mean()

    return model, loss


@case
def regions_of_a_graph():
    """All blocks share one subgraph."""
    model = nn.ModuleList(block() for _ in range(6)).cuda()

    @torch.compiler.nested_compile_region
    def region(x, each):
        return each(x)

    @torch.compile(fullgraph=True)
    def run(x):
        for each in model:
            x = region(x, each)
        return x

    return model, lambda step: square(run, step)


@case
def changed_in_place():
    """A state of the program, what the graph has computed, and its result."""
    model = nn.ModuleList(block() for _ in range(4)).cuda()
    mean = torch.zeros(8, 128, 256, device="cuda")

    @torch.compile
    def run(x):
        mean.mul_(0.9).add_(x)
        for first, _, last in model:
            hidden = first(x).relu_()
            hidden = hidden * mean.mean()
            hidden[:, ::2] += 1
            x = last(hidden.sigmoid()).add_(x)
        return x

    def loss(step):
        found = run(tokens(step)).mul_(2)
        return found.square().mean() + mean.sum()

    return model, loss


@case
def convolutions():
    model = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(4))
    ).cuda()
    run = torch.compile(model)
    return model, lambda step: run(tokens(step).view(8, 16, 32, 64)).square().mean()


@case
def accumulated():
    model = nn.Sequential(*(block() for _ in range(4))).cuda()
    run = torch.compile(model)
    return model, lambda step: (square(run, step), square(run, step + 100))


@case
def twice():
    """Two backward passes over one graph, which PyTorch refuses if one may write to what is saved."""
    torch._functorch.config.donated_buffer = False
    model = nn.Sequential(*(block() for _ in range(4))).cuda()
    run = torch.compile(model)

    def loss(step):
        found = square(run, step)
        found.backward(retain_graph=True)
        return found

    return model, loss


@case
def results_are_used_too():
    """A result of the graph is saved in it, and changed after it."""
    model = nn.Sequential(*(block() for _ in range(4))).cuda()

    @torch.compile
    def run(x):
        y = model(x)
        return y.exp(), y

    def loss(step):
        a, b = run(tokens(step))
        return a.mean() + (b * 2).mean()

    return model, loss


@case
def evaluated():
    """Graphs whose backward pass never runs."""
    model = nn.Sequential(*(block() for _ in range(4))).cuda()
    run = torch.compile(model)

    def loss(step):
        for other in range(3):
            square(run, 50 + other)
        with torch.no_grad():
            square(run, step)
        return square(run, step)

    return model, loss


@case
def compiled_optimizer():
    model = nn.Sequential(*(block() for _ in range(4))).cuda()
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.step = torch.compile(optimizer.step)
    return model, lambda step: square(run, step), optimizer


@case
def steps_of_a_compiled_function():
    """The optimizer's own step stays as it is."""
    model = nn.Sequential(*(block() for _ in range(4))).cuda()
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stepping = SimpleNamespace(step=torch.compile(optimizer.step), zero_grad=optimizer.zero_grad)
    return model, lambda step: square(run, step), stepping


def train(model, loss_of, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    all_losses = []
    for step in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        losses = loss_of(step)
        saved = torch.cuda.memory_allocated()
        for loss in losses if isinstance(losses, tuple) else (losses,):
            loss.backward()
            all_losses.append(loss.detach().cpu())
        del loss, losses
        optimizer.step()
        optimizer.zero_grad()
    return {
        "hash": hash_of(all_losses, model),
        "saved": saved,
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "left": torch.cuda.memory_allocated() - sum(each.nbytes for each in model.state_dict().values()),
    }


names = sys.argv[1:]
torch._dynamo.config.disable = "--eager" in names
for name in names[torch._dynamo.config.disable :] or CASES:
    begin()
    print(json.dumps({"case": name, **train(*CASES[name]()), **counted()}), flush=True)
