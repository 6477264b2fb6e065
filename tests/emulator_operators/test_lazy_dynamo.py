# SPDX-License-Identifier: Apache-2.0
"""Dynamo is imported when a program needs it, and is then what it is without the emulated GPU."""

import contextlib
import os

import pytest
from forked import Forked

PLAIN = {**os.environ, "LD_PRELOAD": "", "SPILLWAY_EMULATE": "0"}


@pytest.fixture(scope="module")
def emulated():
    """Runs a program on the emulated GPU in a process that has imported torch, but not Dynamo."""
    with contextlib.closing(Forked(modules=["torch"])) as first:
        yield first.run


@pytest.fixture(scope="module")
def plain():
    """The same without the emulated GPU."""
    with contextlib.closing(Forked(PLAIN, modules=["torch"])) as first:
        yield lambda code: first.run(code, environment=PLAIN)


TRAINS = """
import sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(2, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_program_that_compiles_nothing_does_not_import_dynamo(emulated):
    done = emulated(TRAINS + "print('torch._dynamo.eval_frame' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    "use",
    [
        "from torch._dynamo import config; print(config.__name__)",
        "import torch._dynamo.backends.debugging; print(torch._dynamo.backends.debugging.__name__)",
        "import torch._dynamo; torch._dynamo.config.suppress_errors = True; print(torch._dynamo.__file__)",
        "import torch.distributed._functional_collectives as module; print(module.__name__)",
        "from torch._dynamo.variables import streams; import torch._dynamo.variables.lazy as lazy\n"
        "print(torch._dynamo.variables.lazy is lazy, torch._dynamo.variables.__spec__.origin)",
        "import importlib.util; print(importlib.util.find_spec('torch._dynamo').origin)",
    ],
)
def test_each_use_of_dynamo_gets_the_real_one(use, emulated, plain):
    found = emulated(TRAINS + use)
    expected = plain("import torch; " + use)
    assert (found.stdout, found.stderr) == (expected.stdout, expected.stderr)
    assert found.stdout


DISABLES = """
seen = []
@torch._disable_dynamo
def untraced(x):
    seen.append(torch.compiler.is_compiling())
    return x + 1

def double(x):
    return untraced(x) * 2

x = torch.ones(2)
before = double(x)
after = torch.compile(double, backend="eager")(x)
print(seen, torch.equal(before, after), list(torch._dynamo.utils.counters["graph_break"].values()))
"""


def test_what_dynamo_must_not_trace_is_not_traced_once_it_compiles(emulated, plain):
    found = emulated(TRAINS + DISABLES)
    expected = plain("import torch" + DISABLES)
    assert found.stdout.startswith("[False, False] True [")
    assert (found.stdout, found.stderr) == (expected.stdout, expected.stderr)
