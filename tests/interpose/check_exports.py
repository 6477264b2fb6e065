# SPDX-License-Identifier: Apache-2.0
"""Fails where a shared library's exports differ from its version script: check_exports.py NM LIST.

Each line of the file LIST is library=script.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path


def listed(script: str) -> list[str]:
    """The patterns that a version script makes global."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", script, flags=re.DOTALL)
    found = re.search(r"global:(.*?)(?:local:|\})", text, re.DOTALL)
    names = re.sub(r'extern\s+"C(\+\+)?"\s*\{|\}|"', " ", found[1]) if found else ""
    return [name.strip() for name in names.split(";") if name.strip()]


def exported(nm: str, library: str) -> set[str]:
    lines = subprocess.run(
        [nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    # A version that a script names is a symbol too, of type A.
    found = [line.split() for line in lines.splitlines()]
    return {fields[-1].split("@")[0] for fields in found if fields[-2] != "A"}


def differences(library: str, symbols: set[str], patterns: list[str]) -> list[str]:
    strays = [each for each in sorted(symbols) if not any(fnmatch.fnmatchcase(each, p) for p in patterns)]
    missing = [p for p in patterns if not any(fnmatch.fnmatchcase(each, p) for each in symbols)]
    return [f"{library}: exports {each}, which its version script does not list" for each in strays] + [
        f"{library}: does not export {each}, which its version script lists" for each in missing
    ]


def main(arguments: list[str]) -> int:
    nm, modules = arguments
    found: list[str] = []
    pairs = [line.split("=", 1) for line in Path(modules).read_text().splitlines() if line]
    for library, script in pairs:
        name = Path(library).name
        found += differences(name, exported(nm, library), listed(Path(script).read_text()))
    print("\n".join(found) if found else f"{len(pairs)} libraries export what their version scripts list")
    return 1 if found or not pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
