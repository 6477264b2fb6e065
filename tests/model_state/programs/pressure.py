# SPDX-License-Identifier: Apache-2.0
"""A training run whose model state is larger than its budget, from loading to saving."""

import io
import sys

import torch
from cases import case, main, managed_stats
from torch import nn

WIDTH = 1024  # 4 MiB a weight


def train(model, optimizer, losses):
    for _ in range(2):
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())


@case
def frozen_weights_that_were_loaded():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(40))).to("cuda").requires_grad_(False)
    copied = (managed_stats() or {}).get("copied_bytes")
    outputs = [model(torch.randn(4, WIDTH).cuda()) for _ in range(3)]
    if copied is not None:
        print("copied after loading:", managed_stats()["copied_bytes"] - copied, file=sys.stderr)
    return outputs, model


@case
def model_state_larger_than_the_budget():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            losses.append(model(torch.randn(4, WIDTH).cuda()).sum().item())
    file = io.BytesIO()
    fetched = (managed_stats() or {}).get("fetched_bytes")
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    if fetched is not None:
        print("fetched to save:", managed_stats()["fetched_bytes"] - fetched, file=sys.stderr)
    return losses, norms, torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


@case
def casts_that_autocast_keeps_until_it_ends():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(32))).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(4, WIDTH).cuda()).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            losses += [model(torch.randn(4, WIDTH).cuda()).sum().item() for _ in range(2)]
    return losses, model


@case
def a_run_that_is_resumed_from_a_checkpoint_in_host_memory():
    file = io.BytesIO()
    losses = []
    for resumes in (False, True):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
        if resumes:
            file.seek(0)
            loaded = torch.load(file, map_location="cpu")
            model.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])
        train(model, optimizer, losses)
        if not resumes:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return losses, model, optimizer


@case
def gradients_that_come_from_host_memory():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(11))).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    losses = []
    for _ in range(3):
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        gradients = [each.grad.cpu() for each in model.parameters()]
        model.zero_grad()
        for each, gradient in zip(model.parameters(), gradients, strict=True):
            each.grad = gradient.cuda()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model, optimizer


@case
def weights_that_are_swapped_when_they_are_loaded():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).to("cuda")
    losses = []
    train(model, torch.optim.AdamW(model.parameters(), lr=0.001), losses)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    train(model, torch.optim.AdamW(model.parameters(), lr=0.001), losses)
    return losses, model


@case
def a_stack_whose_recomputation_at_once_exceeds_the_budget():
    class Layer(nn.Linear):
        def forward(self, x):
            return super().forward(x).sin()

    model = nn.Sequential(*(Layer(WIDTH, WIDTH, bias=False) for _ in range(16))).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(WIDTH, WIDTH, device="cuda")).square().mean()  # 4 MiB in each layer, twice
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


main()
print("reserved:", torch.cuda.max_memory_reserved(), file=sys.stderr)
if managed_stats() is not None:
    import spillway

    print("prefetched:", managed_stats()["prefetched_bytes"], file=sys.stderr)
    print("offloaded:", spillway.stats()["devices"][0]["residency"]["stashed_bytes"], file=sys.stderr)
