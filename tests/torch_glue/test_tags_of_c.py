# SPDX-License-Identifier: Apache-2.0
"""Tags that C code has set may hold any bytes: Python displays them, and raises no UnicodeDecodeError."""

import pytest
from conftest import EMULATED

TAGGED = r"""
import ctypes, json, torch, spillway
from spillway._load import glue
spillway.use_allocator()
library = ctypes.CDLL(spillway.memory.library_path())
tag = b"caf\xe9/\xff\xfe\xf0\x9f"
shown = tag.decode("utf-8", "backslashreplace")
assert library.spillway_tag_push(tag) == 0
held = torch.ones(1 << 20, device="cuda")
current = glue().current_tag()
assert library.spillway_tag_pop() == 0


def raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]


"""

SHOWN = r"""
found = dict(
    current=current,
    of_tensor=glue().tag_of(held),
    memory_by_tag=list(spillway.memory.by_tag()["tags"]),
    summary=spillway.memory.summary(),
    out_of_memory=raised(lambda: torch.empty(1 << 50, dtype=torch.uint8, device="cuda")),
    paused=spillway.pause("*"),
    again=raised(lambda: spillway.pause("*")),
    in_use=raised(lambda: spillway.pause("no such memory")),
    resumed=spillway.resume("*"),
    total=held.sum().item(),
)
with spillway.memory.record_trace() as seen:
    library.spillway_tag_push(tag)
    born = torch.ones(1 << 20, device="cuda")
    library.spillway_tag_pop()
found["recorded"] = [each["tag"] for each in seen.lifetimes]
report([shown, found])
"""


@pytest.mark.skipif(not EMULATED, reason="asks for more than the emulated device has")
def test_bytes_that_are_not_utf8_are_displayed_as_escapes(program):
    shown, found = program(TAGGED + SHOWN, fresh=True, SPILLWAY_EMULATE_MEMORY="64MiB")
    assert r"\xff" in shown
    assert found["current"] == found["of_tensor"] == shown
    assert shown in found["memory_by_tag"] and shown in found["recorded"]
    assert shown in found["summary"]
    kind, text = found["out_of_memory"]
    assert kind == "OutOfMemoryError" and shown in text, text
    assert found["paused"]["blocks"] == found["resumed"]["blocks"] == 1
    assert found["again"][0] == "RuntimeError" and found["in_use"][0] == "ValueError"
    assert found["total"] == 1 << 20
