# SPDX-License-Identifier: Apache-2.0
"""What Spillway may hold on a GPU: limits of its own and PyTorch's fraction, and what happens at them."""

import pytest
from conftest import EMULATED

USE = "import torch, spillway\nspillway.use_allocator({})\nMiB = 1 << 20\n"
pytestmark = pytest.mark.skipif(not EMULATED, reason="needs a device of a known size")
DEVICE = {"SPILLWAY_EMULATE_MEMORY": "64MiB"}
ASK = """
def ask(mib):
    return torch.empty(mib * MiB, dtype=torch.uint8, device="cuda")
def error_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except (RuntimeError, TypeError, ValueError, torch.OutOfMemoryError) as error:
        return f"{type(error).__name__}: {error}"
"""


@pytest.mark.parametrize(
    ("limit", "settings"),
    [
        ("limit='16MiB'", {}),
        ("limit=16 << 20", {}),
        ("", {"SPILLWAY_MEMORY_LIMIT": "16MiB"}),
        ("", {}),
    ],
    ids=["text", "bytes", "setting", "later"],
)
def test_beyond_the_limit_memory_is_out_and_below_it_work_goes_on(program, limit, settings):
    later = "" if limit or settings else "spillway.memory.set_limit('16MiB')\n"
    known, text, held = program(
        USE.format(limit)
        + ASK
        + later
        + """
with spillway.tag("first"):
    first = ask(12)
text = error_of(ask, 8)
second = ask(4)
report([spillway.memory.limit(), text, torch.cuda.memory_reserved()])
""",
        **DEVICE,
        **settings,
    )
    assert known == held == 16 << 20
    assert (
        text.startswith("OutOfMemoryError") and "limited to 16.00 MiB" in text and "first 12.00 MiB" in text
    )


def test_beyond_the_limit_what_may_be_paused_is(program):
    reserved, equal = program(
        USE.format("limit='16MiB'")
        + ASK
        + """
with spillway.tag("offloadable"):
    first = ask(12).fill_(7)
spillway.memory.allow_eviction("offloadable")
second = ask(8)
reserved = torch.cuda.memory_reserved()
del second
with spillway.memory.resident("offloadable"):
    report([reserved, bool((first.cpu() == 7).all())])
""",
        **DEVICE,
    )
    assert reserved == 8 << 20 and equal


def test_a_limit_below_what_is_held_gives_cached_memory_back_and_takes_nothing_that_lives(program):
    cached, after, soft, equal = program(
        USE.format("")
        + ASK
        + """
live = ask(8).fill_(3)
other = ask(24)
del other
cached = torch.cuda.memory_reserved()
spillway.memory.set_limit("4MiB")
after = torch.cuda.memory_reserved()
spillway.memory.set_limit(None)
other = ask(24)
del other
spillway.memory.set_limit("4MiB", soft=True)
soft = torch.cuda.memory_reserved()
grown = ask(24)
report([cached, after, soft, bool((live.cpu() == 3).all()) and torch.cuda.memory_reserved() == 32 * MiB])
""",
        **DEVICE,
    )
    assert (cached, after, soft) == (32 << 20, 8 << 20, 8 << 20) and equal


def test_of_the_fraction_and_the_limit_the_smaller_counts(program):
    texts, fraction, limit = program(
        USE.format("")
        + ASK
        + """
texts = []
for fraction, limit in ((0.25, "32MiB"), (0.5, "16MiB")):
    torch.cuda.set_per_process_memory_fraction(fraction)
    spillway.memory.set_limit(limit)
    texts.append(error_of(ask, 20))
    del_me = ask(16)
    del del_me
torch.cuda.set_per_process_memory_fraction(1.0)
report([texts, torch.cuda.get_per_process_memory_fraction(), spillway.memory.limit()])
""",
        **DEVICE,
    )
    assert all("OutOfMemoryError" in text and "limited to 16.00 MiB" in text for text in texts)
    assert fraction == 1.0 and limit == 16 << 20


def test_what_is_no_limit_is_refused_with_the_range(program):
    errors, limit = program(
        USE.format("")
        + ASK
        + """
ask(1)
errors = [error_of(spillway.memory.set_limit, *each) for each in
          [(0,), (-1,), ("lots",), ("0",), (1.5,), (True,), ("65MiB",), ("16MiB", 9)]]
errors += [error_of(spillway.memory.set_limit, "16MiB", soft=1), error_of(spillway.use_allocator, limit=0)]
report([errors, spillway.memory.limit()])
""",
        **DEVICE,
    )
    kinds = [error.split(":")[0] for error in errors]
    value, kind = "ValueError", "TypeError"
    assert kinds == [value, value, value, value, kind, kind, value, value, kind, value]
    assert "67108864" in errors[6]
    assert limit is None


@pytest.mark.parametrize(
    ("limit", "settings"), [("limit='1GiB'", {}), ("", {"SPILLWAY_MEMORY_LIMIT": "1GiB"})]
)
def test_a_limit_above_the_device_is_an_error_where_the_device_is_first_used(program, limit, settings):
    text = program(USE.format(limit) + ASK + "report(error_of(ask, 1))", **DEVICE, **settings)
    assert text.startswith("ValueError") and "67108864 bytes" in text


def test_pytorchs_own_memory_is_not_limited_here(program):
    text = program("import torch, spillway" + ASK + "report(error_of(spillway.memory.set_limit, '1MiB'))")
    assert text.startswith("RuntimeError") and "set_per_process_memory_fraction" in text
