# SPDX-License-Identifier: Apache-2.0
"""tests/errors/samples.md shows each kind of error as a user reads it, provoked again here."""

from __future__ import annotations

import difflib
import re

import samples


def test_each_error_reads_as_its_sample() -> None:
    listed, found = samples.SNAPSHOT.read_text(), samples.snapshot()
    changes = difflib.unified_diff(listed.splitlines(), found.splitlines(), "listed", "now", lineterm="")
    assert listed == found, "samples changed: read them, and run `python scripts/messages.py --write`\n" + (
        "\n".join(changes)
    )


def test_every_sample_has_a_text() -> None:
    texts = re.findall(r"```text\n(.*?)\n?```", samples.SNAPSHOT.read_text(), re.DOTALL)
    assert len(texts) > 40
    assert not [text for text in texts if not text.strip() or text.startswith("nothing was raised")]
