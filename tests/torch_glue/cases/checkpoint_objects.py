# SPDX-License-Identifier: Apache-2.0
"""Checkpoints over time: what changes between the two runs, is copied, fails, or lives too long."""

import copy
import gc
import inspect
import pickle
import weakref

import spillway
import torch
from torch import nn

from cases import case
from cases.checkpoints import WIDTH, Block, batch, blocks, wrapped
from cases.measure import Copied, same


@case
def a_copy_of_a_wrapped_module_runs_with_its_own_parameters():
    net = spillway.checkpoint_wrapper(blocks(1)[0])
    counterpart = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in counterpart.parameters():
            parameter.mul_(2)
    torch.manual_seed(0)
    mine = net(batch())
    torch.manual_seed(0)
    assert not torch.equal(counterpart(batch()), mine)
    loaded = pickle.loads(pickle.dumps(net))
    torch.manual_seed(0)
    assert torch.equal(loaded(batch()), mine)
    loaded(batch()).sum().backward()
    # Each checkpointed still: it runs again, and its argument moves where that was asked for.
    for one in (net, counterpart, loaded):
        one.runs = 0
        spillway.checkpoint_wrapper(one, offload_to_cpu=True)
    for one in (net, counterpart, loaded, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with Copied() as copied:
            one(batch(rows=24).requires_grad_() * 1).sum().backward()
        assert one.runs in (2, 4) and copied.out == 24 * WIDTH * 4, (one.runs, copied.out)
    for one in (counterpart, loaded):
        assert isinstance(one, Block) and type(one).__name__ == "Block"
        assert list(one.state_dict()) == list(net.state_dict())


@case
def an_argument_that_was_changed_in_place_is_noticed():
    for offload in (False, True):
        x = batch().requires_grad_() * 1
        y = spillway.checkpoint(lambda x: x.sigmoid() * 2, x, offload_to_cpu=offload)
        torch.cuda.synchronize()  # the copy of it is a reader
        with torch.no_grad():
            x.add_(1)
        try:
            y.sum().backward()
            raise AssertionError("it was to raise")
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error


@case
def a_parameter_that_was_changed_before_the_second_run_is_noticed():
    net = wrapped(blocks(1, dropout=0.0))
    y = net(batch().requires_grad_()).sum()
    with torch.no_grad():
        net[0].b.weight.mul_(2)
    try:
        y.backward()
        raise AssertionError("it was to raise")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error


@case
def a_new_object_of_a_wrapped_class_is_usable():
    net = spillway.checkpoint_wrapper(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Tanh()).cuda())
    net[:2](batch().requires_grad_()).sum().backward()
    block = spillway.checkpoint_wrapper(blocks(1)[0])
    assert list(inspect.signature(block.forward).parameters) == ["x", "scale"]


@case
def a_function_that_does_something_else_the_second_time_is_noticed():
    def function(x, more):
        runs.append(1)
        return x.sigmoid().tanh() if len(runs) == 1 else more(x)

    texts = []
    for more in (lambda x: x.sigmoid(), lambda x: x[:1].sigmoid().tanh(), lambda x: x.double().sigmoid()):
        runs = []
        try:
            spillway.checkpoint(function, batch().requires_grad_(), more).sum().backward()
            raise AssertionError("it was to raise")
        except RuntimeError as error:
            texts.append(str(error))
    assert "1 tensors instead of 2" in texts[0], texts[0]
    for text, other in ((texts[1], "float[1, 64]"), (texts[2], "double[16, 64]")):
        assert f"{other} on cuda:0 instead of float[16, 64] on cuda:0" in text.lower(), text


@case
def an_exception_of_either_run_arrives_as_itself():
    class Mine(Exception):
        pass

    def function(x, at):
        runs.append(1)
        y = x.sigmoid()
        if len(runs) == at:
            raise Mine
        return y.tanh()

    for at in (1, 2):
        runs = []
        try:
            spillway.checkpoint(function, batch().requires_grad_(), at).sum().backward()
            raise AssertionError("it was to raise")
        except Mine:
            pass
        assert not spillway.compat.is_checkpointing() and not spillway.compat.is_recomputing()
        with Copied() as copied:
            (batch().requires_grad_() * 2).sigmoid().sum().backward()
        assert copied.out == 0


@case
def nothing_is_held_without_the_collector_of_cycles():
    gc.disable()
    try:
        net = wrapped(blocks(), offload_to_cpu=True)
        x = batch().requires_grad_() * 1
        seen = weakref.ref(x)
        with Copied() as copied:
            y = net(x).sum()
        y.backward()
        del x, y
        assert seen() is None and copied.out > 0
        alive = weakref.ref(net[0])
        del net
        assert alive() is None
    finally:
        gc.enable()


@case
def a_saved_view_of_what_was_fetched_keeps_its_values():
    class ViewOfSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return x.view(-1)[: x.numel()].view_as(x)  # no copy

    def run(call):
        x = batch().requires_grad_()
        y = x * 1
        for _ in range(3):
            y = call(lambda y: ViewOfSaved.apply(y.tanh()), y)
        y.sum().backward()
        return [x.grad]

    plain = run(lambda function, y: function(y))
    with Copied() as copied:
        found = run(lambda function, y: spillway.checkpoint(function, y, offload_to_cpu=True))
    assert same(found, plain) and copied.out > 0 and copied.back > 0
