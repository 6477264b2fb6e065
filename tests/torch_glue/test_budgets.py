# SPDX-License-Identifier: Apache-2.0
"""What an error for want of memory says of a budget while its first step is recorded."""

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
    granule = 2 << 20  # what the limit leaves may lie in pieces that are too small
    assert limit - granule < int(named[1]) <= least == again, text
    assert "lower bound" not in other, other
