# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs from PyTorch: what is captured runs again at every replay, with the bits of eager steps."""

import pytest
import torch
import torch.nn.functional as F
from models import GPT, VOCABULARY
from training import STEPS, fingerprint, random


def batch(step):
    return random(4, 17, seed=step, below=VOCABULARY).cuda()


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def model_and_optimizer():
    torch.manual_seed(0)
    model = GPT(dropout=0.0).cuda()
    return model, torch.optim.Adam(model.parameters(), lr=3e-3, capturable=True)


def train_step(model, optimizer, tokens):
    optimizer.zero_grad(set_to_none=False)
    loss = loss_of(model, tokens)
    loss.backward()
    optimizer.step()
    return loss


def eager():
    model, optimizer = model_and_optimizer()
    losses = [train_step(model, optimizer, batch(step)).item() for step in range(STEPS)]
    return losses, fingerprint(model.state_dict().values())


def warm_up(model, optimizer, tokens):
    """The first step, on a stream of its own as PyTorch asks for: it makes gradients and state."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = train_step(model, optimizer, tokens)
    torch.cuda.current_stream().wait_stream(side)
    return loss.item()


def captured():
    model, optimizer = model_and_optimizer()
    tokens = batch(0)
    losses = [warm_up(model, optimizer, tokens)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train_step(model, optimizer, tokens)
    for step in range(1, STEPS):
        tokens.copy_(batch(step))
        graph.replay()
        losses.append(loss.item())
    return losses, fingerprint(model.state_dict().values())


def test_a_captured_training_step_replays_to_the_bits_of_eager_steps():
    assert captured() == eager()


def test_the_same_under_the_late_schedule(elsewhere):
    losses, state = elsewhere(captured, SPILLWAY_EMULATE_SCHEDULE="late")
    assert (losses, state) == eager()


def test_capturing_runs_nothing():
    counter = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter += 1
    before = counter.item()
    graph.replay()
    graph.replay()
    assert (before, counter.item()) == (0.0, 2.0)


def test_graphed_callables_give_the_bits_of_the_modules_they_stand_for():
    def run(graphed):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).cuda()
        sample = random(4, 8, seed=99).cuda()
        call = torch.cuda.make_graphed_callables(module, (sample,)) if graphed else module
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = call(random(4, 8, seed=step).cuda()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, fingerprint(module.state_dict().values())

    assert run(True) == run(False)


def test_a_graph_s_memory_comes_from_a_pool_of_its_own_that_others_may_share():
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    x = torch.ones(1024, device="cuda")
    with torch.cuda.graph(first):
        y = x * 2
    with torch.cuda.graph(second, pool=first.pool()):
        z = y + 1
    first.replay()
    second.replay()
    pools = {
        tuple(segment["segment_pool_id"])
        for segment in torch.cuda.memory_snapshot()
        for tensor in (y, z)
        if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]
    }
    assert pools == {tuple(first.pool())}
    assert z.tolist() == [3.0] * 1024


def test_what_a_capture_forbids_is_an_error_and_the_device_works_on():
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    assert (x + 1).tolist() == [2.0] * 4
