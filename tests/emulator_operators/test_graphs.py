# SPDX-License-Identifier: Apache-2.0
"""Operators in graphs: nothing runs while it is captured, a replay computes on the bytes of its time."""

import pytest
import torch


def captured(function):
    """A graph of `function`, and its result's tensor, which each replay fills."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def test_a_replay_reads_the_values_of_its_time():
    x = torch.ones(4, device="cuda")
    graph, y = captured(lambda: (x * 3).cumsum(0))
    for value in (2.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y, (x * 3).cumsum(0))


def test_nothing_changes_while_it_is_captured():
    x = torch.ones(4, device="cuda")
    graph, _ = captured(lambda: x.add_(1))
    assert torch.equal(x, torch.ones(4, device="cuda"))
    graph.replay()
    graph.replay()
    assert torch.equal(x, torch.full((4,), 3.0, device="cuda"))


def test_indices_that_are_computed_in_the_capture_index_as_on_a_replay():
    table = torch.arange(10.0, device="cuda")
    scores = torch.eye(10, device="cuda")[3:6].contiguous()
    graph, rows = captured(lambda: table[scores.argmax(-1)])
    scores.copy_(torch.eye(10, device="cuda")[7:10])
    graph.replay()
    assert rows.tolist() == [7.0, 8.0, 9.0]


def test_running_statistics_move_with_replays_alone():
    norm = torch.nn.BatchNorm1d(3).cuda()
    x = torch.randn(5, 3, device="cuda")
    before = norm.running_mean.clone()
    graph, _ = captured(lambda: norm(x).detach())
    assert torch.equal(norm.running_mean, before)
    graph.replay()
    other = torch.nn.BatchNorm1d(3).cuda()
    other(x)
    assert torch.equal(norm.running_mean, other.running_mean)


def test_random_numbers_go_on_from_replay_to_replay():
    torch.cuda.manual_seed(3)
    graph, drawn = captured(lambda: torch.rand(8, device="cuda"))
    draws = []
    for _ in range(2):
        graph.replay()
        draws.append(drawn.clone())
    assert not torch.equal(*draws)
    torch.cuda.manual_seed(3)
    graph.replay()
    assert torch.equal(drawn, draws[0])


def test_intermediate_results_give_their_memory_back_in_the_capture():
    x = torch.randn(1 << 20, device="cuda")

    def chain():
        y = x
        for _ in range(20):
            y = y + 1
        return y

    reserved = torch.cuda.memory_reserved()
    graph, y = captured(chain)
    assert torch.cuda.memory_reserved() - reserved <= 5 * x.nbytes
    graph.replay()
    expected = x
    for _ in range(20):
        expected = expected + 1
    assert torch.equal(y, expected)


def test_modules_are_graphed_with_their_backward_pass():
    module = torch.nn.Linear(6, 2).cuda()
    x = torch.randn(3, 6, device="cuda", requires_grad=True)
    plain = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
    graphed = torch.cuda.make_graphed_callables(
        module, (torch.randn(3, 6, device="cuda", requires_grad=True),)
    )
    replayed = torch.autograd.grad(graphed(x).square().sum(), [x, *module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(plain, replayed, strict=True))


def wait_for_a_value():
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            torch.ones(4, device="cuda").nonzero()
    except RuntimeError as error:
        return str(error)
    return ""


def test_waiting_for_a_value_ends_the_capture(elsewhere):
    assert "capture" in elsewhere(wait_for_a_value)


@pytest.mark.parametrize("schedule", ["eager", "late"])
def test_branches_are_joined(elsewhere, schedule):
    assert elsewhere(fork_and_join, schedule=schedule, check="1") == [6.0, []]


def fork_and_join():
    from order_cases import reports

    x = torch.ones(4, device="cuda")
    side = torch.cuda.Stream()

    def both():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = x + 1
        b = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return (a * b).sum()

    graph, total = captured(both)
    x.fill_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    return [total.item(), reports()]
