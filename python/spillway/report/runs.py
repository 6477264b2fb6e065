# SPDX-License-Identifier: Apache-2.0
"""Finds the logs in a folder, and which of them are of one run. Imports no torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from spillway._files import reason_of
from spillway.report.log import SUFFIX, ReportError, RunLog, read_log

__all__ = ["read_folder", "runs_of"]


def read_folder(folder: Path, notify: Callable[[str], object] = lambda _: None) -> list[RunLog]:
    """The logs of a folder's newest run, by rank and process; the first log has the earlier runs. Calls
    `notify` with the progress. Raises ReportError if there is no log, or if one cannot be read."""
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        raise ReportError(
            f"{folder}: cannot be read ({reason_of(error)}). Name the folder of a report."
        ) from None
    if not files:
        raise ReportError(
            f"{folder}: contains no run log. Write one with spillway run --report {folder} -- COMMAND."
        )
    read = []
    for number, path in enumerate(files, 1):
        notify(f"reading log {number} of {len(files)}")
        read.append(read_log(path))
    *earlier, logs = runs_of(read)
    written = {log.about["spillway"] for log in logs}
    if len(written) > 1:
        raise ReportError(
            f"{folder}: contains logs of Spillway {' and '.join(sorted(written))}. Use one folder for each "
            "run."
        )
    logs.sort(key=lambda log: (_rank(log), log.started, log.about["process"]))
    logs[0].earlier_runs = earlier
    names = Counter(log.name for log in logs)
    for log in [log for log in logs if names[log.name] > 1]:
        log.shares_name = True
    return logs


def runs_of(logs: Iterable[RunLog]) -> list[list[RunLog]]:
    """The newest last. Logs are of one run where one launch began both, or where both were written at the
    same time: each rank can have a launch of its own."""
    runs: list[list[RunLog]] = []
    for log in sorted(logs, key=lambda log: log.started):
        run, others = [log], []
        for each in runs:
            if any(_belong_together(earlier, log) for earlier in each):
                run = each + run
            else:
                others.append(each)
        runs = [*others, run]
    return runs


def _belong_together(earlier: RunLog, later: RunLog) -> bool:
    launch = later.about.get("launch")
    if launch is not None and launch == earlier.about.get("launch"):
        return True
    return later.started <= earlier.stopped


def _rank(log: RunLog) -> int:
    """Zero for a RANK that is not a number: another program's variable."""
    rank = str(log.about.get("rank"))
    return int(rank) if re.fullmatch("[0-9]{1,9}", rank) else 0
