# SPDX-License-Identifier: Apache-2.0
"""Errors of a budget that need a process of their own: where memory ends first, or the program does."""

import re

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
spillway.set_memory_limit(limit)
found = [error_of(spillway.offload(budget=1)), error_of(spillway.CPUOffload(1, tag="none"))]
spillway.set_memory_limit(None)
report([*found, limit, least, smallest(1, rows=1024)])
"""


def test_where_memory_ends_in_the_first_step_the_error_names_a_lower_bound_and_calls_it_one(program):
    text, other, limit, least, again = program(SOURCE)
    named = re.search(r"a budget of spillway\.offload for this step must be at least (\d+) bytes", text)
    assert named and "(a lower bound)" in text, text
    asked = int(re.search(r"(\d+) bytes asked for", text)[1])
    granule = 2 << 20  # what the limit leaves may lie in pieces that are too small
    assert limit - granule < int(named[1]) <= min(limit + asked, least), text
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


OVER_PYTORCH = """
import spillway, torch
from cases.budgets import chain

def error_of(left, backward, region):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    x = torch.randn(1024, 100, device="cuda", requires_grad=True)
    taken = torch.cuda.memory_allocated()
    filler = None if backward else torch.empty(total - left - taken, dtype=torch.uint8, device="cuda")
    try:
        with region:
            loss = chain(x)
        if backward:
            torch.cuda.empty_cache()
            filler = torch.empty(total - left - torch.cuda.memory_reserved(), dtype=torch.uint8, device="cuda")
        loss.backward()
    except torch.OutOfMemoryError as error:
        return str(error), torch.cuda.memory_allocated()
    raise AssertionError("memory did not end")

left = 6 << 20
found = []
for backward in (False, True):
    for region in (spillway.offload(budget="1GiB"), spillway.CPUOffload(1, tag="none")):
        found.append(error_of(left, backward, region)[0])
        spillway.step()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid()).cuda()
spillway.offload(model, budget="1GiB")
total = torch.cuda.get_device_properties(0).total_memory
x = torch.randn(1 << 16, 64, device="cuda")
torch.cuda.empty_cache()
filler = torch.empty(total - (40 << 20) - torch.cuda.memory_reserved(), dtype=torch.uint8, device="cuda")
try:
    model(x).sum().backward()
except torch.OutOfMemoryError as error:
    found.append(str(error))
report([*found, total])
"""


def test_where_pytorchs_memory_ends_in_a_step_with_a_budget_its_error_names_a_lower_bound(program):
    *texts, total = program(OVER_PYTORCH)
    for text in (texts[0], texts[2], texts[4]):
        named = re.search(r"a budget of spillway\.offload for this step must be at least (\d+) bytes", text)
        assert named and "(a lower bound)" in text and "out of memory" in text, text
        assert total - (42 << 20) < int(named[1]) <= total + (42 << 20), (text, total)
    assert not any("lower bound" in text for text in (texts[1], texts[3])), texts
