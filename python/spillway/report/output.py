# SPDX-License-Identifier: Apache-2.0
"""Makes a report's files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from spillway._files import is_stream, reason_of, replace
from spillway.report.digests import Digest, digest
from spillway.report.html_page import page
from spillway.report.log import ReportError, one_line_if_damaged
from spillway.report.runs import read_folder
from spillway.report.trace_events import trace_document

__all__ = ["read", "write"]


def read(folder: Path, notify: Callable[[str], object] = lambda _: None) -> list[Digest]:
    """Calls `notify` with the progress. Raises ReportError."""
    logs = read_folder(folder, notify)
    digests = []
    for number, log in enumerate(logs, 1):
        notify(f"adding up process {number} of {len(logs)}")
        with one_line_if_damaged(log.path):
            digests.append(digest(log))
    return digests


def write(digests: Sequence[Digest], output: Path) -> Path | None:
    """Writes the page to `output` and the trace beside it, whose path it returns. Both are the user's alone.
    If `output` is a device or a pipe, no trace is written beside it, and the function returns None.
    Raises ReportError; what was there before is as it was then."""
    trace = output.with_name("trace.json" if output.name == "report.html" else f"{output.stem}.trace.json")
    with one_line_if_damaged(digests[0].log.path.parent):
        texts = {output: page(digests), trace: json.dumps(trace_document(digests)) + "\n"}
    try:
        alone = is_stream(output)
        replace({output: texts[output]} if alone else texts)
    except OSError as error:
        raise ReportError(
            f"{output}: cannot be written ({reason_of(error)}). Name a writable file with --output."
        ) from None
    return None if alone else trace
