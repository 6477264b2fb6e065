# SPDX-License-Identifier: Apache-2.0
"""Changes to JSON, lines of JSON and binary records that keep most of their structure."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

# What no writer writes; texts between @ stand for JSON that json.dumps cannot make.
_LARGE = (2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**31, 10**60)
_TEXTS = ("", "job", "<script>alert(1)</script>", "p[/p]", "\x1b[31m", "\u202e", "\ud800", "a/b" * 200, "\0")
_RAW = {
    "@digits@": "9" * 5000,
    "@infinite@": "1e999",
    "@nan@": "NaN",
    "@deep@": "[" * 3000 + "]" * 3000,
    "@level@": "[" * 30 + "]" * 30,
}
_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 7, 1.5, -0.0, 1e300, 1e-300, None, True, False, [], {}, [[]], {"a": {}}),
    *_LARGE,
    *_TEXTS,
    *_RAW,
)


def dumped(value: Any) -> str:
    text = json.dumps(value)
    for name, raw in _RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text


def change_json(value: Any, rng: random.Random) -> Any:
    """A copy with one change."""
    changed = copy.deepcopy(value)
    node = changed
    while isinstance(node, list | dict) and node:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if isinstance(node[key], list | dict) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        _change_at(node, key, rng)
        return changed
    return changed


def _change_at(node: Any, key: Any, rng: random.Random) -> None:
    how = rng.random()
    if how < 0.35:
        node[key] = rng.choice(_VALUES)
    elif how < 0.6 and isinstance(node[key], int | float):
        by = rng.choice((1, -1, 1000, -node[key], node[key]))
        node[key] += by
    elif how < 0.75:  # something else of the same container
        other = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node[key], node[other] = node[other], node[key]
    elif how < 0.85:
        del node[key]
    elif isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    else:
        node[rng.choice(("", "else", "0", "-1", "job"))] = copy.deepcopy(node[key])


def change_table(document: dict[str, Any], rng: random.Random) -> bytes:
    """A TOML file: fields changed, left out or taken from another profile."""
    changed = dict(document)
    if rng.random() < 0.4:  # what it leaves out is the other's
        kept = rng.sample(sorted(changed), rng.randrange(len(changed)))
        changed = {name: changed[name] for name in kept}
        changed["like"] = rng.choice(("h100", "a100-80g", "no such", "", 7, "../h100"))
    for _ in range(rng.randrange(0, 3)):
        changed = change_json(changed, rng)
    text = "\n".join(f"{json.dumps(name)} = {_toml(value)}" for name, value in changed.items())
    return (
        change_bytes(text.encode("utf-8", "surrogatepass"), rng)
        if rng.random() < 0.1
        else text.encode("utf-8", "surrogatepass")
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    return '""' if value is None else dumped(value)


def change_lines(lines: list[Any], rng: random.Random, most: int = 90) -> bytes:
    """A log: at most `most` of its lines, some of them changed, left out, twice or elsewhere."""
    first = rng.randrange(1, max(2, len(lines) - most))
    chosen = [lines[0], *(lines[1:first] if rng.random() < 0.2 else []), *lines[first : first + most]]
    kept = [line for line in lines[1:first] if line[0] in ("tag", "name")]  # or no later line could be read
    chosen[1:1] = kept
    for _ in range(rng.randrange(1, 5)):
        at, other = rng.randrange(1, len(chosen)), rng.randrange(1, len(chosen))
        how = rng.random()
        if how < 0.55:
            chosen[at] = change_json(chosen[at], rng)
        elif how < 0.65:
            chosen[0] = change_json(chosen[0], rng)
        elif how < 0.75:
            del chosen[at]
            if len(chosen) < 3:
                break
        elif how < 0.85:
            chosen.insert(other, chosen[at])
        else:
            chosen[at], chosen[other] = chosen[other], chosen[at]
    text = "\n".join(map(dumped, chosen)).encode("utf-8", "surrogatepass") + b"\n"
    return change_bytes(text, rng) if rng.random() < 0.1 else text


def change_document(document: Any, rng: random.Random) -> bytes:
    for _ in range(rng.randrange(1, 4)):
        document = change_json(document, rng)
    text = dumped(document).encode("utf-8", "surrogatepass")
    return change_bytes(text, rng) if rng.random() < 0.05 else text


def change_bytes(content: bytes, rng: random.Random, keep: int = 0) -> bytes:
    """Behind the first `keep` bytes mostly: numbers of 1 to 8 bytes changed, stretches cut, twice or left
    out."""
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        if len(changed) < keep + 16:
            break
        at = rng.randrange(0 if rng.random() < 0.05 else keep, len(changed) - 8)
        how = rng.random()
        if how < 0.3:
            changed[at] ^= 1 << rng.randrange(8)
        elif how < 0.75:
            form = rng.choice("BHIQ")
            size = struct.calcsize(form)
            at -= (at - keep) % size if at >= keep else 0
            bits = 8 * size
            value = rng.choice((0, 1, 2, 3, 24, 25, 40, 2 ** (bits - 1), 2**bits - 1, rng.getrandbits(bits)))
            struct.pack_into(f"<{form}", changed, at, value % 2**bits)
        elif how < 0.85:
            del changed[at : at + rng.choice((1, 4, 8, 40, 4096))]
        elif how < 0.95:
            stretch = rng.choice((1, 8, 40, 200))
            changed[at:at] = changed[at : at + stretch]
        else:
            del changed[at:]
    return bytes(changed)
