# SPDX-License-Identifier: Apache-2.0
"""Makes a report's files."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spillway.report.digest import Digest, digest
from spillway.report.log import ReportError
from spillway.report.page import page
from spillway.report.runs import read_folder
from spillway.report.trace_events import trace_document

__all__ = ["read", "write"]


def read(folder: Path, tell: Callable[[str], object] = lambda _: None) -> list[Digest]:
    """`tell` hears what is being done. Raises ReportError."""
    logs = read_folder(folder, tell)
    digests = []
    for number, log in enumerate(logs, 1):
        tell(f"adding up process {number} of {len(logs)}")
        with _one_line_if_damaged(log.path):
            digests.append(digest(log))
    return digests


@contextlib.contextmanager
def _one_line_if_damaged(path: Path) -> Iterator[None]:
    """Each line of a log can be read, and still they may not be what a job has written."""
    try:
        yield
    except ReportError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ReportError(f"{path}: is damaged: its lines do not fit together ({error!r})") from error


def write(digests: Sequence[Digest], output: Path) -> Path:
    """Writes the page to `output` and the trace beside it, whose path it returns. Both are the user's alone.
    Raises ReportError; what was there before is as it was then."""
    trace = output.with_name("trace.json" if output.name == "report.html" else f"{output.stem}.trace.json")
    with _one_line_if_damaged(digests[0].log.path.parent):
        texts = {output: page(digests), trace: json.dumps(trace_document(digests)) + "\n"}
    made: dict[Path, str] = {}
    try:
        for path, text in texts.items():
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            made[path] = name
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
        for path in texts:
            os.replace(made.pop(path), path)
    except OSError as error:
        raise ReportError(f"{output}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    finally:
        for name in made.values():
            with contextlib.suppress(OSError):
                os.unlink(name)
    return trace
