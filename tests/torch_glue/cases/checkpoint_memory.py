# SPDX-License-Identifier: Apache-2.0
"""What checkpoints hold, to the byte, and for how long."""

import statistics

import spillway
import torch

from cases import case
from cases.checkpoints import WIDTH, batch, blocks, wrapped
from cases.measure import Copied, same

SIZE = 16 * WIDTH * 4


@case
def memory_falls_from_plain_to_checkpointed_to_offloaded_to_the_byte():
    def after_forward(net):
        """What is held in most rounds: the first makes what the libraries need, and what earlier cases
        have left may go in any."""
        x, held = batch(), []
        for _ in range(5):
            torch.cuda.synchronize()
            spillway.step()
            before = torch.cuda.memory_allocated()
            with Copied() as copied:
                y = net(x)
            torch.cuda.synchronize()
            spillway.step()  # releases what a copy out has read
            held.append(torch.cuda.memory_allocated() - before)
            seen.append((held[-1], copied.out, spillway.stats()["pending_sources"]))
            y.sum().backward()
            del y
        return statistics.mode(held)

    seen = []  # of each round, for the message
    # Each block saves its input and its tanh; the first input is the caller's, the result is held here.
    held = [
        after_forward(net)
        for net in (
            blocks(dropout=0.0),
            wrapped(blocks(dropout=0.0)),
            wrapped(blocks(dropout=0.0), offload_to_cpu=True),
        )
    ]
    assert held == [(2 + 3 + 1) * SIZE, (2 + 1) * SIZE, SIZE], seen


@case
def the_peak_falls_from_plain_to_checkpointed_to_offloaded_to_the_byte():
    count = 8

    def block(x):
        return x.sigmoid().tanh().sigmoid()  # each saves its result

    def peak(call):
        def step():
            y = x
            for _ in range(count):
                y = call(block, y)
                torch.cuda.synchronize()  # over PyTorch's allocator memory is free when its copy has passed
            loss = y.sum()
            del y
            loss.backward()

        x = batch().requires_grad_()
        for _ in range(2):  # the second time the gradient is there
            torch.cuda.synchronize()
            spillway.step()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            with Copied() as copied:
                step()
            found = torch.cuda.max_memory_allocated() - before
        return found, copied.out

    def offloaded(function, y):
        return spillway.checkpoint(function, y, offload_to_cpu=True)

    scalars = 2 * 512  # the loss and its gradient
    # Everything that was saved, and the gradient that comes up.
    assert peak(lambda function, y: function(y)) == ((3 * count + 1) * SIZE + scalars, 0)
    # The arguments but the first, what one block saves, and the gradient that comes up.
    assert peak(spillway.checkpoint) == ((count - 1 + 3 + 1) * SIZE + scalars, 0)
    # The next argument on its way, what one block saves, and two more: while it runs again its argument and
    # the gradient of its result, afterwards two gradients.
    assert peak(offloaded) == ((1 + 3 + 2) * SIZE + scalars, (count - 1) * SIZE)


@case
def a_graph_can_be_used_again_and_each_time_leaves_nothing():
    net = wrapped(blocks(dropout=0.0), offload_to_cpu=True)
    x = batch().requires_grad_()
    with Copied() as copied:
        y = net(x).square().sum()
    assert copied.out > 0
    seen, held = [], []
    for _ in range(3):
        net.zero_grad(set_to_none=False)
        x.grad = None if x.grad is None else x.grad.zero_()
        y.backward(retain_graph=True)
        seen.append([x.grad.clone(), *(p.grad.clone() for p in net.parameters())])
        spillway.step()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated() - sum(held_by(one) for one in seen))
    assert same(seen[0], seen[1]) and same(seen[0], seen[2])
    assert held[1] == held[2], held
    assert same(list(torch.autograd.grad(y, [x])), seen[0][:1])


@case
def what_a_backward_pass_does_not_use_is_forgotten_at_its_end():
    net = wrapped(blocks(1, dropout=0.0))
    y = net(batch().requires_grad_()).sum()
    # The last layer's input alone: what the first one saved is computed as well, and left over.
    torch.autograd.backward(y, inputs=[net[0].b.weight], retain_graph=True)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    del y
    assert held - torch.cuda.memory_allocated() == 16 * WIDTH * 4 + 512  # the input, and the sum


def held_by(tensors):
    return sum(-(-tensor.untyped_storage().nbytes() // 512) * 512 for tensor in tensors)


class Kept(torch.autograd.Function):
    """Appends what it has saved to `seen` when it goes backward."""

    @staticmethod
    def forward(ctx, x, kept, seen):
        ctx.save_for_backward(kept)
        ctx.seen = seen
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.extend(ctx.saved_tensors)
        return grad, None, None


@case
def a_backward_pass_inside_another_one_has_the_values_of_one_run():
    first, second, nested = [], [], []

    def function(x):
        drawn = torch.rand_like(x)
        return Kept.apply(x, drawn, first), Kept.apply(x, drawn, second)

    x = batch().requires_grad_()
    u, v = spillway.checkpoint(function, x, preserve_rng_state=False)

    def once(_):
        # Of the outer pass's run the second tensor is left.
        if not nested:
            nested.append(1)
            with torch.enable_grad():
                torch.autograd.grad((u + v).sum(), x, retain_graph=True)

    x.register_hook(once)
    torch.autograd.grad(u.sum(), x, retain_graph=True)
    assert nested and len(first) == 2 and len(second) == 1
    assert torch.equal(first[1], second[0]) and not torch.equal(first[0], first[1])
