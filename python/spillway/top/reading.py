# SPDX-License-Identifier: Apache-2.0
"""Reads the statistics page of a running process (allocator/runtime/stats_page.h). Imports no torch."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spillway._files import read_start, reason_of
from spillway._process import has_ended, start_of
from spillway._text import parse_json, printable
from spillway.cannot_help import REASONS
from spillway.top import pages

__all__ = ["DeviceReading", "Reading", "TagReading", "TopError", "find", "read"]

MAGIC, VERSION = b"SPILLTOP", 4
_HEAD = struct.Struct("<8sII6QIIIIIIQ")
_DEVICE = struct.Struct("<20Q")
_TAG = struct.Struct("<64s4Q")
_MOST_DEVICES, _MOST_TAGS = 8, 24
SIZE = _HEAD.size + _MOST_DEVICES * _DEVICE.size + _MOST_TAGS * _TAG.size
_CLASSES = ("parameters", "buffers", "gradients", "optimizer_states", "autocast_casts")
_TRIES = 1000
_RESTART = "Start the job again."
_FIRST_LINE = 8 << 20  # bytes of a log that its first line may have: a command line may have 2 MiB


class TopError(ValueError):
    """No statistics can be shown. The message is one line for the user."""


@dataclass(frozen=True)
class DeviceReading:
    """Bytes. `copied_out` and `copied_in` count from the beginning of the process."""

    allocated: int
    allocated_peak: int
    reserved: int
    offloaded: int
    pinned: int
    pinned_peak: int
    copied_out: int
    copied_in: int
    capacity: int
    index: int
    # Model state by class, of a job with a budget: on the GPU, and on the host only.
    resident: dict[str, int] = field(default_factory=dict)
    on_host: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TagReading:
    """Bytes of the last step; stalls, and nanoseconds of them, from the beginning of the process."""

    name: str
    offloaded: int
    offloadable: int
    stalls: int
    stalled: int


@dataclass(frozen=True)
class Reading:
    """The content of a process's page at one moment, `updated` (nanoseconds since 1970)."""

    process: int
    process_start: int
    updated: int
    writes: int
    steps: int
    emulated: bool
    uses_spillway: bool
    devices: tuple[DeviceReading, ...]
    tags: tuple[TagReading, ...]
    cannot_help: str = ""  # why offloading does not lower the peak, where that is known
    cannot_help_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find(target: str) -> list[Path]:
    """The page of a process by its ID, or the pages of the processes that write into a report's folder.
    Raises TopError."""
    if re.fullmatch("[0-9]{1,10}", target):
        return [_of_process(int(target))]
    folder = Path(target)
    if not os.path.isdir(folder):
        raise TopError(f"{target}: expected a process ID, or the folder of a report")
    found = _of_folder(folder)
    if not found:
        raise TopError(
            f"{target}: no running job writes to this folder. Look at the job's end with spillway report."
        )
    return found


def _of_process(process: int) -> Path:
    try:
        owner = os.stat(f"/proc/{process}").st_uid
    except FileNotFoundError:
        ended = pages.has_left(process)
        raise TopError(
            f"{process}: {'has ended' if ended else 'is not a running process'}. Name a running one."
        ) from None
    except OSError as error:
        raise TopError(
            f"{process}: cannot be examined ({reason_of(error)}). Run spillway top as the job's user."
        ) from None
    if owner != os.getuid():
        raise TopError(f"{process}: is a process of another user. Run spillway top as that user.")
    path = pages.path_of(process)
    if has_ended(process):
        raise TopError(f"{process}: has ended. Name a running process.")
    if path is None or not path.exists():
        raise TopError(
            f"{process}: has no statistics. Start it with spillway run --report DIR, and wait until it uses "
            "CUDA."
        )
    return path


def _of_folder(folder: Path) -> list[Path]:
    from spillway.report.log import SUFFIX

    found = []
    try:
        logs = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        raise TopError(f"{folder}: cannot be read ({reason_of(error)}). Name a readable folder.") from None
    if not logs:
        raise TopError(f"{folder}: contains no run log. Start the job with spillway run --report {folder}.")
    for log in logs:
        try:
            line = read_start(log, _FIRST_LINE).split(b"\n", 1)[0]
            about = parse_json(line.decode("utf-8", "replace"))
            process, start = int(about["process"]), int(about["process_start"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
        path = pages.path_of(process)
        if start_of(process) == start and path is not None and path.exists():
            found.append(path)
    return found


def read(path: Path) -> Reading:
    """Raises TopError, also if the process has ended."""
    if not pages.is_private(path):
        if not path.exists():
            raise TopError(f"{path}: belongs to a process that has ended. Name a running job.")
        raise TopError(f"{path}: is not trusted, because other users can write to it. Delete it.")
    for _ in range(_TRIES):
        try:
            text = read_start(path, SIZE + 1)
        except OSError as error:
            raise TopError(
                f"{path}: cannot be read ({reason_of(error)}). Run spillway top as the job's user."
            ) from None
        if len(text) < 16 or text[:8] != MAGIC:
            raise TopError(f"{path}: is not a statistics page. Delete it, and start the job again.")
        version, size = struct.unpack_from("<II", text, 8)
        if version != VERSION:
            raise TopError(
                f"{path}: has layout {version}, but this Spillway reads layout {VERSION}. Use the version "
                "of the job."
            )
        if size != SIZE or len(text) != SIZE:
            raise TopError(f"{path}: is damaged ({len(text)} bytes instead of {SIZE}). {_RESTART}")
        # One read of a page is no single moment: the process may write meanwhile.
        sequence = _HEAD.unpack_from(text)[5]
        if sequence % 2 == 0 and _sequence(path) == sequence:
            return _reading(path, text)
    raise TopError(f"{path}: is incomplete; its process stopped during a write. {_RESTART}")


def _sequence(path: Path) -> int:
    try:
        text = read_start(path, _HEAD.size)
    except OSError:  # it has ended
        return -1
    return int(_HEAD.unpack(text)[5]) if len(text) == _HEAD.size else -1


def _device(fields: tuple[int, ...]) -> DeviceReading:
    names = [
        each for each in DeviceReading.__dataclass_fields__ if each not in ("index", "resident", "on_host")
    ]
    resident, on_host = (dict(zip(_CLASSES, each, strict=True)) for each in (fields[9:14], fields[14:19]))
    plain = dict(zip(names, fields, strict=False))
    return DeviceReading(**plain, index=fields[19], resident=resident, on_host=on_host)


def _reading(path: Path, text: bytes) -> Reading:
    head = _HEAD.unpack_from(text)
    (
        _,
        _,
        _,
        process,
        start,
        _,
        updated,
        writes,
        steps,
        emulated,
        devices,
        tags,
        uses_spillway,
        why,
        _,
        why_bytes,
    ) = head
    if devices > _MOST_DEVICES or tags > _MOST_TAGS:
        raise TopError(
            f"{path}: is damaged ({devices} devices and {tags} tags; at most {_MOST_DEVICES} and "
            f"{_MOST_TAGS} fit). {_RESTART}"
        )
    at = _HEAD.size
    found = [_device(_DEVICE.unpack_from(text, at + each * _DEVICE.size)) for each in range(devices)]
    at += _MOST_DEVICES * _DEVICE.size
    named = []
    for each in range(tags):
        name, *numbers = _TAG.unpack_from(text, at + each * _TAG.size)
        named.append(TagReading(printable(name.split(b"\0", 1)[0].decode("utf-8", "replace")), *numbers))
    return Reading(
        process,
        start,
        updated,
        writes,
        steps,
        bool(emulated),
        bool(uses_spillway),
        tuple(found),
        tuple(named),
        REASONS[why] if why < len(REASONS) else "",
        why_bytes,
    )
