# SPDX-License-Identifier: Apache-2.0
"""Changes to binary records by their fields, so that readers get past the first check of a file."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from mutations import change_bytes
from spillway import preload_trace as calls
from spillway.top import reading

_TEXTS = (b"", b"a/b", b"a[b]p[/p]", b"\xff\xfe", b"\x1b[31m", b"<script>", "\u202e".encode(), b"x" * 64)


def _value(form: str, rng: random.Random) -> int:
    """Of a field of this form: small, at a limit, or any."""
    bits = 8 * struct.calcsize(f"<{form}")
    most = 2 ** (bits - 1) - 1 if form.islower() else 2**bits - 1
    least = -most - 1 if form.islower() else 0
    return rng.choice((0, 1, 2, 3, rng.randrange(64), least, most, rng.randint(least, most)))


def _change_fields(record: struct.Struct, values: list, rng: random.Random, first: int = 0) -> None:
    forms = [form for form in _forms(record)]
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(first, len(forms))
        values[at] = rng.choice(_TEXTS) if forms[at] == "s" else _value(forms[at], rng)


def _forms(record: struct.Struct) -> list[str]:
    """The form of each field: "<2Q4s" is Q, Q, s."""
    forms: list[str] = []
    number = ""
    for each in record.format.lstrip("<"):
        if each.isdigit():
            number += each
            continue
        forms += [each] * (1 if each == "s" else int(number or 1))
        number = ""
    return forms


def change_page(content: bytes, rng: random.Random) -> bytes:
    """A statistics page of full size, mostly with fields changed."""
    changed = bytearray(content)
    if rng.random() < 0.3:
        return change_bytes(content, rng, keep=16)[: len(content)].ljust(len(content), b"\1")
    for _ in range(rng.randrange(1, 4)):
        how = rng.random()
        if how < 0.4:
            record, at, first = reading._HEAD, 0, 0 if rng.random() < 0.1 else 3
        elif how < 0.7:
            record, first = reading._DEVICE, 0
            at = reading._HEAD.size + record.size * rng.randrange(reading._MOST_DEVICES)
        else:
            record, first = reading._TAG, 0
            at = reading._HEAD.size + reading._DEVICE.size * reading._MOST_DEVICES
            at += record.size * rng.randrange(reading._MOST_TAGS)
        values = list(record.unpack_from(changed, at))
        _change_fields(record, values, rng, first)
        record.pack_into(changed, at, *values)
    return bytes(changed[: rng.randrange(len(changed))]) if rng.random() < 0.03 else bytes(changed)


@dataclass
class Calls:
    """A trace of the preload library, in its parts."""

    head: list
    names: bytes
    sections: list[tuple[int, list, list[list]]] = field(default_factory=list)  # kind, its head, its calls

    @classmethod
    def of(cls, content: bytes) -> Calls:
        head = list(calls._HEAD.unpack_from(content))
        at = calls._HEAD.size + head[2]
        found = cls(head, content[calls._HEAD.size : at])
        while at < len(content):
            kind, length = calls._SECTION.unpack_from(content, at)
            body = content[at + calls._SECTION.size :][:length]
            first = calls._EVENTS if kind == calls._EVENTS_KIND else calls._END
            events = [list(each) for each in calls._EVENT.iter_unpack(body[first.size :])]
            found.sections.append((kind, list(first.unpack_from(body)), events))
            at += calls._SECTION.size + length
        return found

    def content(self, lengths: random.Random | None = None) -> bytes:
        """As a file; with `lengths` one section has a wrong one."""
        parts = [calls._HEAD.pack(*self.head), self.names]
        wrong = lengths.randrange(len(self.sections)) if lengths is not None and self.sections else -1
        for number, (kind, head, events) in enumerate(self.sections):
            first = calls._EVENTS if kind == calls._EVENTS_KIND else calls._END
            body = first.pack(*head) + b"".join(calls._EVENT.pack(*each) for each in events)
            length = len(body)
            if lengths is not None and number == wrong:
                length = max(0, length + lengths.choice((-calls._EVENT.size, -1, 1, 2**31, -length)))
            parts += [calls._SECTION.pack(kind, length), body]
        return b"".join(parts)


_KINDS = (
    *("allocate", "free", "create", "release", "retain", "host_allocate", "host_free", "host_register"),
    *("host_unregister", "copy", "copy_in", "copy_out", "fill", "launch", "graph_launch", "capture_begin"),
)


def change_calls(content: bytes, rng: random.Random) -> bytes:
    """A trace of calls with kinds, addresses and moments changed, and now and then its structure."""
    if rng.random() < 0.2:
        return change_bytes(content, rng, calls._HEAD.size)
    made = Calls.of(content)
    lists = made.names.split(b"\n\n")
    if rng.random() < 0.5:  # all kinds that a summary counts
        known = lists[1].split(b"\n")
        lists[1] = b"\n".join(known + [each.encode() for each in _KINDS if each.encode() not in known])
    if rng.random() < 0.1:
        lists[rng.randrange(len(lists))] = rng.choice(_TEXTS)
    made.names = b"\n\n".join(lists)
    made.head[2] = len(made.names)
    functions, kinds = (len(each.split(b"\n")) for each in [*lists, b"", b""][:2])
    if rng.random() < 0.3:
        made.head[1] = rng.choice(calls._VERSIONS)
    if rng.random() < 0.05:
        _change_fields(calls._HEAD, made.head, rng, first=1)
    events = [each for _, _, found in made.sections for each in found]
    for event in rng.sample(events, min(len(events), rng.randrange(1, 30))):
        event[1] = rng.choice((0, 4096, 8192, event[1]))  # few addresses, so that births meet deaths
        event[4], event[5] = rng.randrange(functions), rng.randrange(kinds)
        event[6] = rng.choice((0, 0, 0, 1, 600))
        if rng.random() < 0.3:
            event[0] = 0  # its moment is not known
        if rng.random() < 0.05:
            _change_fields(calls._EVENT, event, rng)
    how = rng.random()
    if how < 0.1 and made.sections:
        made.sections.append(rng.choice(made.sections))
    elif how < 0.2 and made.sections:
        _, head, _ = rng.choice(made.sections)
        head[-1] = _value("Q", rng)
    elif how < 0.25 and made.sections:
        at = rng.randrange(len(made.sections))
        made.sections[at] = (rng.choice((0, 1, 2, 3)), *made.sections[at][1:])
        kind, head, found = made.sections[at]
        wanted = calls._EVENTS if kind == calls._EVENTS_KIND else calls._END
        if len(head) != len(_forms(wanted)):
            made.sections[at] = (kind, [0] * len(_forms(wanted)), found)
    return made.content(rng if rng.random() < 0.1 else None)
