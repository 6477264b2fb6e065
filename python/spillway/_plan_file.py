# SPDX-License-Identifier: Apache-2.0
"""Recorded steps in a file, so that the next run of a job plans its first step already."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from spillway._load import glue

__all__ = ["PlanFile"]

_FORMAT = 1
_log = logging.getLogger("spillway")


class PlanFile:
    """What one tag has recorded on the GPU that is current, for jobs alike on the same kind of GPU. With
    several ranks each has a file of its own, whose name ends in its rank."""

    def __init__(self, path: str | os.PathLike[str], tag: str) -> None:
        rank = os.environ.get("RANK")
        given = Path(path).absolute()
        self.path = given if rank is None else given.with_name(f"{given.name}.{rank}")
        self.tag = tag
        self._read = False
        self._records = 0  # as of the file

    def read(self) -> None:
        """The first call plans with what is in the file, where there is one for this GPU and this torch.
        Raises ValueError for a file that no such job has written."""
        if self._read or not self.path.exists():
            self._read = True
            return
        try:
            found = json.loads(self.path.read_text())
            if found["spillway_plans"] != _FORMAT:
                raise ValueError(f"format {found['spillway_plans']}, and not {_FORMAT}")
            if found["where"] == _where():
                glue().learn_steps(self.tag, _device(), found["steps"])
            else:
                _log.info("%s is of %s, and not used on %s", self.path, found["where"], _where())
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"plans={self.path}: cannot be used: {error}; delete the file") from None
        self._read = True
        self._records = glue().records(self.tag)

    def write(self) -> None:
        """Writes the file anew where more has been recorded. What cannot be written is logged."""
        records = glue().records(self.tag)
        if records == self._records:
            return
        steps = glue().known_steps(self.tag, _device())
        if not steps:
            return
        self._records = records
        text = json.dumps({"spillway_plans": _FORMAT, "where": _where(), "steps": steps})
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(text)
            draft.replace(self.path)
        except OSError as error:
            _log.warning("the plans are not kept: %s", error)
            with contextlib.suppress(OSError):
                draft.unlink()


def _device() -> int:
    import torch

    return torch.cuda.current_device()


def _where() -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(_device())
    return {"torch": torch.__version__, "gpu": properties.name, "bytes": properties.total_memory}
