# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's headers declare, and which of it our lists wrap."""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NVIDIA = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
INCLUDE = NVIDIA / "cu13" / "include"
RUNTIME = NVIDIA / "cu13" / "lib" / "libcudart.so.13"
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Parameter:
    type: str  #: without const, struct and enum
    name: str

    @property
    def points(self) -> bool:
        return self.type.endswith("*")


@dataclass(frozen=True)
class Wrapped:
    """A row of the lists, or its counterpart for the thread's own default stream."""

    symbol: str
    base: str
    version: int  #: 0: the runtime's
    suffix: str
    kind: str

    @property
    def parameters(self) -> list[Parameter]:
        if self.version == 0:
            return runtime_functions()[self.base]
        return driver_types()[self.base, self.version, self.suffix]


@cache
def _text(header: str) -> str:
    text = (INCLUDE / header).read_text()
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def _parameters(text: str) -> list[Parameter]:
    text = re.sub(r"__dv\([^)]*\)|=\s*\w+|\b(const|struct|enum)\b", " ", text)
    found = []
    for each in text.split(","):
        match = re.fullmatch(r"(.*?)(\w+)(\[\])?", " ".join(each.split()))
        if match and match[1]:
            found.append(Parameter(match[1].replace(" ", "") + ("*" if match[3] else ""), match[2]))
    return found


@cache
def driver_types() -> dict[tuple[str, int, str], list[Parameter]]:
    """The parameters of each version of each driver function, by base, version and suffix."""
    found = re.findall(
        r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\(([^;]*)\);", _text("cudaTypedefs.h")
    )
    return {(base, int(version), suffix): _parameters(text) for base, version, suffix, text in found}


@cache
def runtime_functions() -> dict[str, list[Parameter]]:
    found = re.findall(
        r"CUDARTAPI(?:_CDECL)?\s+(cuda\w+)\s*\(([^;{]*?)\)\s*;", _text("cuda_runtime_api.h"), re.DOTALL
    )
    return {name: _parameters(text) for name, text in reversed(found)}


@cache
def driver_functions() -> set[str]:
    """The driver functions of cuda.h, without what their symbols have for version and stream."""
    names = re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w+)\s*\(", _text("cuda.h"))
    return {re.sub(r"(_v\d)?(_pt[sd][sz])?$", "", name) for name in names}


@cache
def wrapped() -> list[Wrapped]:
    """All that our lists name."""
    found = []
    rows = (REPOSITORY / "interpose" / "driver_functions.inc").read_text()
    for symbol, base, version, kind in re.findall(
        r"^SPILLWAY_DRIVER\((\w+), (\w+), (\d+), k(\w+),", rows, re.MULTILINE
    ):
        found.append(Wrapped(symbol, base, int(version), "", kind))
    for symbol, base, version, own, suffix, kind in re.findall(
        r"^SPILLWAY_DRIVER_PER_THREAD\((\w+), (\w+), (\d+), (\d+), (\w+), k(\w+),", rows, re.MULTILINE
    ):
        found.append(Wrapped(symbol, base, int(version), "", kind))
        found.append(Wrapped(symbol + suffix, base, int(own), suffix, kind))
    rows = (REPOSITORY / "interpose" / "runtime_functions.inc").read_text()
    for symbol, kind in re.findall(r"^SPILLWAY_RUNTIME\((\w+), k(\w+),", rows, re.MULTILINE):
        found.append(Wrapped(symbol, symbol, 0, "", kind))
    for symbol, suffix, kind in re.findall(
        r"^SPILLWAY_RUNTIME_PER_THREAD\((\w+), (\w+), k(\w+),", rows, re.MULTILINE
    ):
        found.append(Wrapped(symbol, symbol, 0, "", kind))
        found.append(Wrapped(symbol + suffix, symbol, 0, suffix, kind))
    return found


@cache
def left_out() -> list[str]:
    """The patterns of docs/preload_functions.md."""
    text = (REPOSITORY / "docs" / "preload_functions.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (`[^|]*`) \|", text, re.MULTILINE)
    return [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]
