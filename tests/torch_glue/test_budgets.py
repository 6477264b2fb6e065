# SPDX-License-Identifier: Apache-2.0
"""Errors of a budget that need a process of their own: where memory ends first, or the program does."""

import re

import pytest
from conftest import EMULATED

SOURCE = """
import spillway, torch
spillway.use_allocator()
from cases.budgets import smallest, step

def error_of(region):
    try:
        step(region, rows=1024)
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("memory did not end")

step(spillway.CPUOffload(1, tag="warm"), rows=8)
least = smallest(1, rows=1024)
torch.cuda.empty_cache()
limit = 6 << 20
spillway.memory.set_limit(limit)
found = [error_of(spillway.offload(budget=1, recompute=False)), error_of(spillway.CPUOffload(1, tag="none"))]
spillway.memory.set_limit(None)
report([*found, limit, least, smallest(1, rows=1024)])
"""


BOUND = re.compile(r"a budget of spillway\.offload for this step must be at least (\d+)(\w+)")


def bytes_of(number: str, unit: str) -> int:
    return int(float(number) * 2 ** {"B": 0, "bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30}[unit])


def test_where_memory_ends_in_the_first_step_the_error_names_a_lower_bound_and_calls_it_one(program):
    text, other, limit, least, again = program(SOURCE)
    named = BOUND.search(text)
    assert named and "(a lower bound)" in text, text
    asked = bytes_of(*re.search(r"cannot allocate ([\d.]+) (\w+)", text).groups())
    granule = 2 << 20  # what the limit leaves may lie in pieces that are too small
    most = min(limit + asked, least)
    assert limit - granule < bytes_of(*named.groups()) <= most + most // 50, text
    assert least == again  # and the step after is recorded as if nothing had been
    assert "lower bound" not in other, other


ENDING = """
import spillway
spillway.use_allocator()
from cases.budgets import smallest
report(smallest(1, rows=1024))
"""


def test_a_program_may_end_right_after_it_has_caught_a_budget_error(program):
    for _ in range(3):
        assert program(ENDING) > 0  # and its exit status is 0


IN_A_JOB = """
import contextlib
import spillway
from cases.budgets import step

def found():
    plan = spillway.explain()
    return plan and plan.tag

tags = [found()]
for _ in range(4):
    step(contextlib.nullcontext())
    spillway.step()
tags.append(found())
for _ in range(4):
    step(spillway.offload(budget="1GiB", tag="mine"))
    spillway.step()
try:
    tags.append(found())
except ValueError as error:
    tags.append(str(error))
report(tags)
"""


def test_the_only_plan_is_explained_by_default(program):
    none, only, several = program(IN_A_JOB, SPILLWAY_BUDGET="1GiB", SPILLWAY_KEEP_MODEL_STATE="1")
    assert (none, only) == (None, "job")
    assert "'job', 'mine'" in several, several


def test_a_job_that_fits_has_no_plan(program):
    assert program(IN_A_JOB, SPILLWAY_BUDGET="1GiB") == [None, None, None]


ON_TWO_DEVICES = """
import spillway, torch
spillway.use_allocator()
layers = [torch.nn.Linear(256, 256).to(f"cuda:{place // 3}") for place in range(6)]
for _ in range(4):
    x = torch.randn(1024, 256, device="cuda:0")
    with spillway.offload(budget="256MiB", tag="two"):
        for layer in layers:
            x = layer(x.to(layer.weight.device)).sigmoid()
        loss = x.sum()
    loss.backward()
    for device in (0, 1):
        torch.cuda.synchronize(device)
report([spillway.explain("two", device) is not None for device in (0, 1)])
"""


@pytest.mark.skipif(not EMULATED, reason="needs two devices, which the emulated GPU always has")
def test_a_step_on_two_devices_has_a_plan_with_times_on_each(program):
    assert program(ON_TWO_DEVICES, SPILLWAY_EMULATE_DEVICES="2") == [True, True]


OVER_PYTORCH = """
import spillway, torch
from cases.budgets import chain

total = torch.cuda.get_device_properties(0).total_memory
layers = [torch.nn.Linear(100, 500), torch.nn.Linear(500, 4000)]
x = torch.randn(8192, 100, device="cuda", requires_grad=True)
region = {region}

# A real GPU's kernels and libraries take memory first.
for warm in (chain, torch.nn.Sequential(*layers).cuda()):
    warm(x[:8].detach().requires_grad_()).sum().backward()
torch.cuda.synchronize()
torch.cuda.empty_cache()
taken = torch.cuda.memory_allocated()
# Others may use the device at the same time: memory ends for this process alone.
torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
try:
    with region:
        {loss}
except torch.OutOfMemoryError as error:
    report([str(error), taken])
"""
MODEL = "spillway.offload(torch.nn.Sequential(*layers).cuda(), budget=total)"


@pytest.mark.parametrize(
    ("region", "loss", "named"),
    [
        ("spillway.offload(budget=total)", "chain(x)", True),
        ("spillway.compat.NoOpManager()", f"{MODEL}(x).sum()", True),
        ("spillway.CPUOffload(1)", "chain(x)", False),
    ],
)
def test_where_pytorchs_memory_ends_in_a_region_with_a_budget_its_error_names_a_lower_bound(
    program, region, loss, named
):
    text, taken = program(OVER_PYTORCH.format(region=region, loss=loss))
    assert "out of memory" in text
    bound = BOUND.search(text)
    assert bool(bound) == named and ("(a lower bound)" in text) == named, text
    # Beside it there are what was left, and what was asked for.
    assert not named or 0 < bytes_of(*bound.groups()) - taken < 256 << 20, (text, taken)
