# SPDX-License-Identifier: Apache-2.0
"""spillway.pause and resume under PyTorch: contents, addresses, graphs, errors, and what runs out."""

import pytest
from conftest import EMULATED

USE = "import torch, spillway\nfrom spillway import tag\nspillway.use_allocator()\n"
LATE = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
# Two states under a tag, made by work that is late, and how much the device has.
STATE = (
    USE
    + """
def free(): return torch.cuda.mem_get_info()[0]
with tag("optimizer"):
    m = torch.empty(8 << 18, device="cuda").copy_(torch.arange(8 << 18))
    v = m * 2
other = torch.ones(8 << 18, device="cuda")
before = free()
"""
)


def test_memory_goes_and_is_fetched_with_its_bits_at_its_addresses(program):
    said = program(
        STATE
        + """
at = m.data_ptr(), v.data_ptr()
paused = spillway.pause("optimizer")
gone = free() - before
accounting = spillway.memory.by_tag()
away = [accounting["tags"]["optimizer"]["paused"], accounting["total"]["paused"]]
resumed = spillway.resume("optimizer")
back = free() - before
# On another stream, without a wait: a resume is over when it returns.
with torch.cuda.stream(torch.cuda.Stream()):
    sums = (m + v).cpu()
report([paused, gone, resumed, back, at == (m.data_ptr(), v.data_ptr()),
        torch.equal(sums, torch.arange(8 << 18).float() * 3), other.sum().item(), away])
""",
        **LATE,
    )
    paused, gone, resumed, back, same, equal, others, away = said
    size = 2 * (8 << 20)
    assert paused == {"blocks": 2, "bytes": size, "copied_bytes": size, "released_bytes": size}
    assert gone == size and back == 0
    assert away == [size, size]
    assert (resumed["blocks"], resumed["copied_bytes"]) == (2, size)
    assert same and equal and others == 8 << 18


def test_discarded_contents_are_not_copied(program):
    paused = program(
        STATE + "report(spillway.pause('optimizer', discard=True))\nspillway.resume('optimizer')\n"
    )
    assert paused["copied_bytes"] == 0 and paused["released_bytes"] == 2 * (8 << 20)


@pytest.mark.skipif(not EMULATED, reason="ends the device's context")
def test_a_touch_while_paused_faults(program):
    said = program(
        STATE
        + """
spillway.pause("optimizer")
try:
    m.add_(1)
    torch.cuda.synchronize()
    report("nothing")
except (RuntimeError, torch.AcceleratorError) as error:
    report(str(error))
import os; os._exit(0)
"""
    )
    assert "IllegalAddress" in said


def test_what_cannot_be_moved_is_refused_and_changes_nothing(program):
    errors = program(
        STATE
        + """
def error_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        return [type(error).__name__, str(error)]
errors = [
    error_of(spillway.pause, "unused"),
    error_of(spillway.resume, "unused"),
    error_of(spillway.resume, "optimizer"),
    error_of(spillway.pause, 3),
    error_of(spillway.memory.forbid_eviction, "optimizer"),
    error_of(spillway.memory.allow_eviction, ""),
    error_of(spillway.pause, "", wait=False),
    error_of(spillway.resume, ""),
    error_of(spillway.pause, "optimizer", discard="no"),
    error_of(spillway.pause, "optimizer", wait=1),
    error_of(spillway.memory.resident("").__enter__),
]
unchanged = free() == before
spillway.pause("optimizer")
errors.append(error_of(spillway.pause, "optimizer"))
spillway.resume("optimizer")
report([errors, unchanged, m.sum().item() == torch.arange(8 << 18).float().cuda().sum().item()])
"""
    )
    errors, unchanged, equal = errors
    assert [name for name, _ in errors] == [
        "ValueError", "ValueError", "RuntimeError", "TypeError", "RuntimeError", "ValueError",
        "ValueError", "ValueError", "TypeError", "TypeError", "ValueError", "RuntimeError",
    ]  # fmt: skip
    assert '"optimizer"' in errors[0][1] and "paused already" in errors[-1][1]
    assert 'pattern ""' in errors[6][1] and "discard must be True or False" in errors[8][1]
    assert unchanged and equal


def test_a_pause_that_goes_on_is_joined_by_the_resume(program):
    going, again, resumed, equal, failed = program(
        STATE
        + """
going_on = spillway.pause("optimizer", wait=False)
report_of_it = going_on.wait()
again = going_on.done() and going_on.wait() == report_of_it
spillway.resume("optimizer")
spillway.pause("optimizer", wait=False)
resumed = spillway.resume("optimizer")
equal = torch.equal((m + v).cpu(), torch.arange(8 << 18).float() * 3)
spillway.pause("unused", wait=False)
try:
    spillway.resume("optimizer")
except ValueError as error:
    failed = str(error)
report([report_of_it, again, resumed, equal, failed])
""",
        **LATE,
    )
    size = 2 * (8 << 20)
    assert going == {"blocks": 2, "bytes": size, "copied_bytes": size, "released_bytes": size}
    assert again and equal and (resumed["blocks"], resumed["copied_bytes"]) == (2, size)
    assert "unused" in failed


@pytest.mark.skipif(not EMULATED, reason="needs a device of a known size")
def test_where_memory_does_not_suffice_a_resume_states_who_holds_it(program):
    texts, equal = program(
        STATE
        + """
spillway.pause("optimizer")
with tag("hog"):
    hog = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
texts = []
for fetch in (lambda: spillway.resume("optimizer"), spillway.memory.resident("optimizer").__enter__):
    try:
        fetch()
    except torch.OutOfMemoryError as error:
        texts.append(str(error))
del hog
spillway.resume("optimizer")
report([texts, torch.equal((m + v).cpu(), torch.arange(8 << 18).float() * 3)])
""",
        SPILLWAY_EMULATE_MEMORY="64MiB",
    )
    assert len(texts) == 2 and equal
    for text in texts:
        assert text.startswith("CUDA out of memory. Tried to allocate 16.00 MiB. GPU 0 (emulated)")
        assert "allocated by tag: hog 50.00 MiB" in text and 'spillway.pause("hog")' in text


def test_a_snapshot_shows_no_memory_where_it_is_paused(program):
    before, paused, after = program(
        STATE
        + """
def seen():
    segments = torch.cuda.memory_snapshot()
    return [sum(s["total_size"] for s in segments), sum(s["allocated_size"] for s in segments),
            sum(b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"),
            torch.cuda.memory_reserved()]
before = seen()
spillway.pause("optimizer")
paused = seen()
spillway.resume("optimizer")
report([before, paused, seen()])
"""
    )
    state, other = 2 * (8 << 20), 8 << 20
    assert before == after == [state + other] * 4
    assert paused == [other] * 4


def test_without_host_memory_nothing_is_paused(program):
    name, moved = program(
        STATE
        + """
try:
    spillway.pause("optimizer")
except MemoryError as error:
    report([type(error).__name__, free() - before])
""",
        SPILLWAY_PINNED_LIMIT="12MiB",
    )
    assert name == "MemoryError" and moved == 0


def test_a_tensor_freed_while_paused_gives_its_host_memory_back(program):
    pinned = program(
        STATE
        + """
spillway.pause("optimizer")
del m, v
report(spillway.stats()["devices"][0]["host"]["in_slots_bytes"])
"""
    )
    assert pinned == 0


SHORT = {"SPILLWAY_EMULATE_MEMORY": "64MiB"}
HOLD = (
    USE
    + """
with tag("optimizer"):
    state = torch.full((24 << 18,), 5.0, device="cuda")
with tag("activation/layers.0"):
    saved = torch.full((8 << 18,), 6.0, device="cuda")
"""
)


@pytest.mark.skipif(not EMULATED, reason="needs a device with little memory")
def test_where_memory_runs_out_what_may_be_paused_makes_room(program):
    value, paused = program(
        HOLD
        + """
spillway.memory.allow_eviction("optimizer")
large = torch.ones(40 << 18, device="cuda")
paused = spillway.stats()["devices"][0]["pauses"]["paused_bytes"]
del large
with spillway.memory.resident("optimizer"):
    value = state.mean().item()
report([value, paused])
""",
        **SHORT,
        **LATE,
    )
    assert value == 5.0 and paused == 24 << 20


@pytest.mark.skipif(not EMULATED, reason="needs a device with little memory")
def test_the_error_names_the_smallest_tag_whose_pause_makes_room_and_it_does(program):
    named, others, fits = program(
        HOLD
        + """
import re
try:
    torch.ones(44 << 18, device="cuda")
except torch.OutOfMemoryError as error:
    text = str(error)
named = re.search(r'spillway.pause\\("([^"]*)"\\)', text)[1]
spillway.pause("activation")
try:
    torch.ones(44 << 18, device="cuda")
    others = "enough"
except torch.OutOfMemoryError:
    others = "too little"
spillway.resume("activation")
spillway.pause(named)
report([named, others, torch.ones(44 << 18, device="cuda").sum().item()])
""",
        **SHORT,
    )
    assert (named, others, fits) == ("optimizer", "too little", 44 << 18)


@pytest.mark.skipif(not EMULATED, reason="needs a device with little memory")
def test_where_the_limit_is_below_what_is_held_only_what_makes_up_for_that_helps(program):
    text, paused = program(
        HOLD
        + """
spillway.memory.allow_eviction("activation")
spillway.memory.set_limit("16MiB")
try:
    torch.ones(1 << 18, device="cuda")
except torch.OutOfMemoryError as error:
    text = str(error)
report([text, spillway.memory.by_tag()["tags"]["activation/layers.0"]["paused"]])
""",
        **SHORT,
    )
    assert 'pausing "optimizer" (24' in text and paused == 0


@pytest.mark.skipif(not EMULATED, reason="needs a device with little memory")
def test_what_is_resident_is_not_paused(program):
    assert (
        program(
            HOLD
            + """
spillway.memory.allow_eviction("optimizer")
with spillway.memory.resident("optimizer"):
    try:
        torch.ones(40 << 18, device="cuda")
        report("room")
    except torch.OutOfMemoryError:
        report(state.mean().item())
""",
            **SHORT,
        )
        == 5.0
    )


@pytest.mark.skipif(not EMULATED, reason="needs a device with little memory")
def test_a_resume_pauses_what_may_be_paused_instead(program):
    assert program(
        HOLD
        + """
spillway.pause("optimizer")
with tag("cache"):
    cache = torch.full((40 << 18,), 7.0, device="cuda")
spillway.memory.allow_eviction("cache")
spillway.resume("optimizer")
value = state.mean().item()
spillway.pause("optimizer")
spillway.resume("cache")
report([value, cache.mean().item()])
""",
        **SHORT,
        **LATE,
    ) == [5.0, 7.0]


def test_a_captured_graph_replays_after_a_resume(program):
    equal = program(
        STATE
        + """
graph = torch.cuda.CUDAGraph()
warm = torch.cuda.Stream()
with torch.cuda.stream(warm):
    out = m * 3 + v
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    out = m * 3 + v
graph.replay()
expected = out.cpu()
spillway.pause("optimizer")
spillway.resume("optimizer")
out.zero_()
graph.replay()
report(torch.equal(out.cpu(), expected))
"""
    )
    assert equal
