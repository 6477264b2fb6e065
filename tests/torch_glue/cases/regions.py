# SPDX-License-Identifier: Apache-2.0
"""Regions begin and end as context managers do."""

import threading

import spillway
import torch

from cases import case, of_threads
from cases.measure import Copied, last, same_bits


def loss_of(x):
    return (x * 2).sigmoid().sum()


def moves():
    """Whether a tensor saved now moves."""
    with Copied() as copied:
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        loss_of(x).backward()
    return copied.out > 0


@case
def nothing_moves_outside_a_region():
    assert not moves()


@case
def one_object_may_be_entered_while_it_is_open():
    region = spillway.CPUOffload(1, tag="again")
    with region:
        with region:
            assert moves()
        assert moves()
    assert not moves()


@case
def the_inner_of_two_regions_has_the_saved_tensors():
    with spillway.CPUOffload(1, tag="outer"):
        with spillway.CPUOffload(0, tag="inner"):
            assert not moves()
        assert moves()


@case
def an_exception_ends_the_region():
    try:
        with spillway.CPUOffload(1, tag="raises"):
            assert moves()
            raise KeyError("inside")
    except KeyError:
        pass
    assert not moves()


@case
def it_decorates_a_function():
    decorated = spillway.CPUOffload(1, tag="decorated")(moves)
    assert decorated() and not moves()


@case
def a_region_holds_for_its_own_thread_alone():
    results = []
    with spillway.CPUOffload(1, tag="mine"):
        thread = threading.Thread(target=lambda: results.append(moves()))
        thread.start()
        thread.join()
    assert results == [False]


@case
@of_threads
def threads_train_in_regions_at_the_same_time():
    def gradient(seed, ratio):
        # A stream, and so memory, of its own: free memory that threads share goes from one to the other under
        # a lock that the order checker cannot see.
        with torch.cuda.stream(torch.cuda.Stream()):
            return gradient_there(seed, ratio)

    def gradient_there(seed, ratio):
        x = inputs[seed].clone().requires_grad_()
        for _ in range(3):
            with spillway.CPUOffload(ratio, tag=f"threads {ratio}"):
                loss = loss_of(x.tanh())
            loss.backward()
        return x.grad

    inputs = [torch.randn(64, 64, device="cuda") for _ in range(4)]
    results = {}
    torch.cuda.synchronize()
    with Copied() as copied:
        threads = [
            threading.Thread(target=lambda s=seed: results.update({s: gradient(s, 1)})) for seed in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert copied.out > 0
    spillway.step()
    expected = [gradient(seed, 0) for seed in range(4)]
    torch.cuda.synchronize()
    assert all(same_bits(results[seed], expected[seed]) for seed in range(4))


@case
def no_grad_saves_nothing_and_plans_nothing():
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with spillway.CPUOffload(1, tag="evaluation"), torch.no_grad():
        loss_of(x)
    spillway.step()
    assert last("evaluation")["offloadable_bytes"] == 0


@case
def a_tag_has_one_ratio_in_a_step_and_may_have_another_in_the_next():
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with spillway.CPUOffload(1, tag="one"):
        loss = loss_of(x)
    try:
        spillway.CPUOffload(0.5, tag="one").__enter__()
    except ValueError as error:
        assert "one" in str(error)
    else:
        raise AssertionError("two ratios in one step")
    loss.backward()
    with spillway.CPUOffload(0.5, tag="one"):
        pass


@case
def an_optimizer_step_ends_the_step():
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with spillway.CPUOffload(1, tag="optimizer"):
        loss = loss_of(x)
    loss.backward(retain_graph=True)
    steps = spillway.stats()["steps"]
    torch.optim.SGD([x], lr=0.1).step()
    assert spillway.stats()["steps"] == steps + 1
