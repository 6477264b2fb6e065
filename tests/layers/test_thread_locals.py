# SPDX-License-Identifier: Apache-2.0
"""No header of the libraries defines a thread-local variable: each library would have its own."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("allocator", "hooks", "interpose", "torch_glue")
COMMENT = re.compile(r"//.*")


def test_headers_define_no_thread_local() -> None:
    headers = [header for folder in FOLDERS for header in sorted((ROOT / folder).rglob("*.h"))]
    assert len(headers) > 100
    found = []
    for header in headers:
        for number, line in enumerate(header.read_text(encoding="utf-8").splitlines(), 1):
            code = COMMENT.sub("", line)
            if "thread_local" in code and "extern" not in code:
                found.append(f"{header.relative_to(ROOT)}:{number}")
    assert not found
