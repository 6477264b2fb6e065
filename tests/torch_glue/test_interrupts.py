# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C inside whatever opens and closes something of a thread leaves nothing open.

Python checks for signals between bytecodes. A trace function raises KeyboardInterrupt at the n-th check of
all code that is called from here, for n = 0, 1, 2, ... until a pass is over before the n-th. Real signals
cover the bytecodes of the `with` statement itself.
"""

import sys

import pytest

PROGRAM = """
import contextlib, dis, opcode, os, signal, sys, tempfile, torch, spillway
from torch import nn
from spillway._load import glue
from spillway.checkpointing import _state

spillway.use_allocator()
ours = sys._getframe().f_code.co_filename


def open_now():
    counts = [_state.disabled, _state.checkpointing, _state.recomputing]
    return [glue().open_regions(), glue().current_tag(), glue().in_pool(), *counts]


nothing = open_now()


def handler_of(code, offset, tables={}):
    "Where the exceptions of this bytecode go; raised one bytecode later, they must go there, too."
    if code not in tables:
        tables[code] = getattr(dis, "_parse_exception_table", lambda _: [])(code)
    inside = [entry for entry in tables[code] if entry.start <= offset < entry.end]
    return inside[-1].target if inside else None


class AtCheck:
    "Raises at the n-th check for signals: where a function begins, after a call and at a jump back."

    def __init__(self, number):
        self.left = number
        self.last = {}

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename == ours:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            code, now = frame.f_code, frame.f_lasti
            before = self.last.get(frame, now)
            self.last[frame] = now
            name = "RESUME" if before == now else opcode.opname[code.co_code[before]]
            checks = name.startswith(("RESUME", "CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))
            if checks and handler_of(code, before) == handler_of(code, now):
                if self.left == 0:
                    raise KeyboardInterrupt
                self.left -= 1
        elif event == "return":
            self.last.pop(frame, None)
        return self


def interrupt_everywhere(body, after=lambda: None):
    "How many checks `body` has been interrupted at."
    for _ in range(3):
        body()
    after()
    number = 0
    while True:
        interrupt = AtCheck(number)
        try:
            sys.settrace(interrupt)
            body()
            sys.settrace(None)
            if interrupt.left:
                return number
        except KeyboardInterrupt:
            sys.settrace(None)
            # While the traceback keeps all frames alive.
            after()
            assert open_now() == nothing, (number, open_now())
        number += 1


def bits(region=None):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3))).cuda()
    losses = []
    for _ in range(2):
        with region or contextlib.nullcontext():
            loss = net(torch.randn(64, 64, device="cuda")).square().sum()
        loss.backward()
        losses.append(loss.item().hex())
    return losses, [p.grad.double().sum().item().hex() for p in net.parameters()]


def in_scope(make):
    def body():
        with make():
            pass
    return body
"""

SCOPES = {
    "a ratio": "lambda: spillway.CPUOffload(1.0, tag='ratio')",
    "a manager": "lambda: spillway.compat.OffloadActivations()",
    "a manager that does nothing": "lambda: spillway.compat.NoOpManager()",
    "recomputation": "lambda: spillway.recompute()",
    "a budget": "lambda: spillway.offload(budget='1GiB')",
    "a budget with a file": "lambda: spillway.offload(budget='1GiB', plans=folder + '/plans')",
    "a tag": "lambda: spillway.tag('outer/inner')",
    "resident memory": "lambda: spillway.memory.resident('paused')",
    "a step of micro-batches": "lambda: micro",
    "no checkpoints": "lambda: spillway.compat.disable_checkpointing()",
    "a recording": "lambda: spillway.memory.record_trace()",
    "torch_memory_saver's region": "lambda: saver.region('weights')",
}

IN_A_SCOPE = """
folder = tempfile.mkdtemp()
from spillway.memory_saver import torch_memory_saver as saver
kept = torch.ones(1024, device="cuda")
with spillway.tag("paused"):
    paused = torch.ones(1 << 20, device="cuda")
micro = spillway.microbatches()
make = MAKE
count = interrupt_everywhere(in_scope(make))
region = make()
report([count, bits() == bits(region if hasattr(region, "is_open") else None)])
"""


@pytest.mark.parametrize("name", SCOPES)
def test_an_interrupt_at_any_check_of_entering_and_leaving_leaves_nothing_open(program, name):
    count, same = program(PROGRAM + IN_A_SCOPE.replace("MAKE", SCOPES[name]))
    assert count > 10 and same
    print(name, count)


NESTED = """
from spillway.memory_saver import torch_memory_saver as saver
micro = spillway.microbatches()
# On the CPU: the backward pass of a GPU runs on a thread of its own, which no signal interrupts.
checkpointed = spillway.checkpoint_wrapper(nn.Linear(4, 4))
x = torch.ones(4, 4, requires_grad=True)


def step():
    with micro, micro.batch(), spillway.tag("tag"), spillway.recompute():
        pass


def saved():
    with saver.region("a"), saver.disable():
        pass


def recomputed():
    checkpointed(x).sum().backward()


report([interrupt_everywhere(each) for each in (step, saved, recomputed)])
"""


def test_an_interrupt_at_any_check_of_nested_scopes_leaves_nothing_open(program):
    assert min(program(PROGRAM + NESTED)) > 10


STATISTICS = """
# On the CPU: the backward pass of a GPU runs on a thread of its own, which no signal interrupts.
norm = nn.BatchNorm1d(4)
x = torch.ones(4, 4, requires_grad=True)
loss = spillway.checkpoint(norm, x).sum()
buffers = dict(norm._buffers)


def in_place():
    assert all(norm._buffers[name] is buffer for name, buffer in buffers.items())


report(interrupt_everywhere(lambda: loss.backward(retain_graph=True), in_place))
"""


def test_an_interrupt_in_a_second_run_leaves_a_batch_norm_its_statistics(program):
    assert program(PROGRAM + STATISTICS) > 10


HOOKED = {
    "a budget": "spillway.offload(net, budget='1GiB')",
    "kept modules": "spillway.memory.keep_on_device(net[1])",
    "a pipeline's stage": "micro.attach(net)",
    "named regions": "_named_regions.start({'1': 0.5})",
    "roles": "spillway.tags.watch()",
}

IN_HOOKS = """
from spillway import _named_regions
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).cuda()
x = torch.ones(4, 4, device="cuda")
micro = spillway.microbatches()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
HOOK


def forward():
    with micro if PIPELINE else contextlib.nullcontext():
        return net(x)


def after():
    "The next region of the program, and the next forward pass."
    with spillway.CPUOffload(1.0):
        assert glue().open_regions() == 1, glue().open_regions()
    inside = []
    handle = net[1].register_forward_pre_hook(lambda *_: inside.append(glue().open_regions()))
    with micro if PIPELINE else contextlib.nullcontext():
        net(x)
    handle.remove()
    assert inside == [ordinary], inside
    torch.empty(0, device="cuda")


ordinary = HAS_REGION
report(interrupt_everywhere(forward, after))
"""


@pytest.mark.parametrize("name", HOOKED)
def test_an_interrupt_at_any_check_of_a_hooked_forward_pass_leaves_nothing_open(program, name):
    source = IN_HOOKS.replace("HOOK", HOOKED[name]).replace("PIPELINE", str("stage" in name))
    assert program(PROGRAM + source.replace("HAS_REGION", str(int(name != "roles")))) > 10


STEP_ROLES = """
net = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
net(torch.ones(4, 4, device="cuda")).sum().backward()
spillway.tags.watch()


def after():
    optimizer.step()
    assert glue().current_tag() == "", glue().current_tag()


report(interrupt_everywhere(optimizer.step, after))
"""


def test_an_interrupted_optimizer_step_does_not_name_what_is_allocated_after_the_next_one(program):
    assert program(PROGRAM + STEP_ROLES) > 10


SIGNALS = """
import random
signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(0)
region, tag = spillway.CPUOffload(1.0), spillway.tag("tag")
interrupted = 0
while interrupted < 2000:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-4))
        while True:
            with tag, region:
                pass
            with region, tag:
                pass
    except KeyboardInterrupt:
        interrupted += 1
        assert open_now() == nothing, (interrupted, open_now())
report(bits() == bits(region))
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="`with` loses __exit__ there (CPython issue 148874)")
def test_signals_at_random_times_leave_nothing_open(program):
    assert program(PROGRAM + SIGNALS, fresh=True)
