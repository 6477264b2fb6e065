# SPDX-License-Identifier: Apache-2.0
"""Recorded steps in a file, so that the next run of a job plans its first step already."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, ClassVar

from spillway._files import read_text, reason_of, replace
from spillway._load import glue
from spillway._text import parse_json

__all__ = ["PlanFile"]

_FORMAT = 5
_MOST = 256  # steps in a file: no more are planned with
_log = logging.getLogger("spillway")


class PlanFile:
    """The recorded steps of one tag on one GPU (by default the current one), for later jobs on the same
    kind of GPU. With several ranks each has its own file, whose name ends in its rank."""

    _all: ClassVar[dict[tuple[Path, str], PlanFile]] = {}

    def __init__(self, path: str | os.PathLike[str], tag: str, device: int | None = None) -> None:
        self.path = _of_rank(path)
        self.tag = tag
        self._given = device
        self._read = False
        self._records = 0  # as of the file

    @classmethod
    def of(cls, path: str | os.PathLike[str], tag: str) -> PlanFile:
        """The same for all regions with that file and tag, however often one is made."""
        key = (_of_rank(path), tag)
        if not os.path.isdir(key[0].parent):
            raise ValueError(
                f"plans={key[0]}: folder {key[0].parent} does not exist. Create it, or name a file elsewhere."
            )
        if key not in cls._all:
            cls._all[key] = cls(path, tag)
        return cls._all[key]

    def read(self) -> None:
        """The first call plans from the file, if it exists and is for this GPU and this torch. Raises
        ValueError for a file that is not a plan file."""
        if self._read:
            return
        try:
            found = parse_json(read_text(self.path))
            if found["spillway_plans"] > _FORMAT:
                raise ValueError(f"it has format {found['spillway_plans']} of a newer Spillway")
            if found["spillway_plans"] < _FORMAT:
                _log.info("%s was written by an older Spillway and is ignored", self.path)
            elif found["where"] == self._where():
                glue().learn_steps(self.tag, self._device(), found["steps"])
            else:
                _log.info("%s is for %s and is ignored on %s", self.path, found["where"], self._where())
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ValueError(
                f"plans={self.path}: cannot be read ({reason_of(error)}). Name a readable file."
            ) from None
        except ValueError as error:
            raise ValueError(
                f"plans={self.path}: cannot be used ({error}). Delete it, or name another file."
            ) from None
        except (LookupError, TypeError, OverflowError, RuntimeError):
            raise ValueError(
                f"plans={self.path}: is not a plan file. Delete it, or name another file."
            ) from None
        self._read = True

    def write(self) -> None:
        """Writes the file again if more steps have been recorded. Entries for other tags and shapes are kept.
        A failure is logged."""
        records = glue().records(self.tag)
        if records == self._records:
            return
        steps = glue().known_steps(self.tag, self._device())
        if not steps:
            return
        self._records = records
        steps = (steps + self._others(steps))[:_MOST]
        text = json.dumps({"spillway_plans": _FORMAT, "where": self._where(), "steps": steps})
        try:
            replace({self.path: text}, mode=0o666)
        except OSError as error:
            _log.warning(
                "plans=%s: cannot be written (%s). Name a writable file.", self.path, reason_of(error)
            )

    def _others(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The file's entries for other tags and shapes."""
        try:
            found = parse_json(read_text(self.path))
            if found["spillway_plans"] != _FORMAT or found["where"] != self._where():
                return []
            known = {_shape(step) for step in steps}
            return [step for step in found["steps"] if _shape(step) not in known]
        except (OSError, LookupError, TypeError, ValueError):
            return []

    def _device(self) -> int:
        import torch

        if self._given is not None and self._given < torch.cuda.device_count():
            return self._given
        return torch.cuda.current_device()

    def _where(self) -> dict[str, Any]:
        import torch

        properties = torch.cuda.get_device_properties(self._device())
        return {"torch": torch.__version__, "gpu": properties.name, "bytes": properties.total_memory}


def _of_rank(path: str | os.PathLike[str]) -> Path:
    rank = os.environ.get("RANK")
    given = Path(path).absolute()
    return given if rank is None else given.with_name(f"{given.name}.{rank}")


def _shape(step: dict[str, Any]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    return tuple(step["sizes"]), tuple(step["recomputable"])
