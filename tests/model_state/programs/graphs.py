# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: a replay uses the addresses of its capture, so what a capture has used stays resident."""

import torch
from cases import case, main, managed_stats
from small_models import inputs, minimize
from torch import nn

REPLAYS = 3


def net():
    return nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24)).cuda()


def warmed_up(step, times=2):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def trained_beside(steps=2):
    """Another model, which is not captured."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train():
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs(4, 24)).square().mean().backward()
            optimizer.step()

    return model, optimizer, train


def check_kept(at_least):
    stats = managed_stats()
    if stats is not None:
        assert stats["resident_reasons"]["cuda_graph"]["storages"] >= at_least, stats


@case
def a_whole_step():
    model, batch = net(), inputs(4, 24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)
    other, other_optimizer, train_other = trained_beside()

    def step():
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warmed_up(step)
    train_other()
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    check_kept(4)
    losses = []
    for _ in range(REPLAYS):
        batch.copy_(inputs(4, 24))
        graph.replay()
        losses.append(loss.item())
        train_other()
        losses.append(model[0].weight.norm().item())
    return losses, model, optimizer, other, other_optimizer


@case
def gradients_kept_between_replays():
    model, batch = net(), inputs(4, 24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def backward():
        model(batch).square().mean().backward()

    warmed_up(backward)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backward()
    for _ in range(REPLAYS):
        optimizer.zero_grad(set_to_none=False)
        graph.replay()
        optimizer.step()
        _, _, train_other = trained_beside()
        train_other()
    return model, optimizer


@case
def a_forward_pass_for_evaluation():
    model, batch = net().eval(), inputs(4, 24)
    with torch.no_grad():
        warmed_up(lambda: model(batch))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(batch)
    seen = []
    for _ in range(REPLAYS):
        trained_beside()[2]()
        with torch.no_grad():
            model[0].weight.mul_(0.5)
        batch.copy_(inputs(4, 24))
        graph.replay()
        seen.append(out.clone())
    return seen, model


@case
def callables_with_graphs():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model[0] = torch.cuda.make_graphed_callables(model[0], (inputs(4, 24).requires_grad_(),))

    def loss_of(_):
        return model(inputs(4, 24).requires_grad_()).square().mean()

    return minimize(loss_of, optimizer, REPLAYS), model, optimizer


@case
def models_made_in_a_pool():
    """`use_mem_pool` opens a pool, and captures nothing."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        model, optimizer, train = trained_beside()
        train()
    train()
    other = trained_beside()
    with torch.cuda.use_mem_pool(pool):
        other[2]()
    return model, optimizer, other[:2]


main()
