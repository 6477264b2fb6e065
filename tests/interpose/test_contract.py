# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's own runtime and libraries find when they look the driver up under us.

Each library runs in a child of its own whose driver answers look-ups and ends the child where more is asked
for. What a look-up must give is read from NVIDIA's headers, not from our lists.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import CLIENTS, DRIVER, SHIM, environment, run

NVIDIA = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
HEADERS = NVIDIA / "cu13" / "include"
LISTS = Path(__file__).parents[2] / "interpose"
PER_THREAD = 2

FIRST_CALL = {
    "cu13/lib/libcudart.so.13": "cudaGetDevice(there)",
    "cu13/lib/libcublas.so.13": "cublasCreate_v2(there)",
    "cu13/lib/libcublasLt.so.13": "cublasLtCreate(there)",
    "cu13/lib/libcusolver.so.12": "cusolverDnCreate(there)",
    "cu13/lib/libcusparse.so.12": "cusparseCreate(there)",
    "cu13/lib/libcufft.so.12": "cufftPlan1d(there, 64, 0x29, 1)",
    "cu13/lib/libcurand.so.10": "curandCreateGenerator(there, 100)",
    "cudnn/lib/libcudnn.so.9": "cudnnCreate(there)",
    "nccl/lib/libnccl.so.2": "ncclCommInitAll(there, 1, None)",
}


def wrapped_symbols() -> set[str]:
    """The driver functions of our lists."""
    rows = (LISTS / "driver_functions.inc").read_text()
    symbols = set(re.findall(r"^SPILLWAY_DRIVER(?:_PER_THREAD)?\((\w+),", rows, re.MULTILINE))
    counterparts = re.findall(r"^SPILLWAY_DRIVER_PER_THREAD\((\w+),.*?, (_pt[sd][sz]),", rows, re.MULTILINE)
    return symbols | {name + suffix for name, suffix in counterparts}


def versions(base: str) -> dict[str, list[int]]:
    """When the shapes of a function began, by the suffix of its counterpart, from cudaTypedefs.h."""
    text = (HEADERS / "cudaTypedefs.h").read_text()
    found = re.findall(rf"\(CUDAAPI \*PFN_{base}_v(\d+)(_pt[sd][sz])?\)", text)
    shapes: dict[str, list[int]] = {}
    for version, suffix in found:
        shapes.setdefault(suffix, []).append(int(version))
    return shapes


def newest_symbol(base: str) -> str:
    """What libcuda.so.1 exports for the newest shape, from cuda.h: where programs are still compiled with an
    older one, or with a function of another name, it is declared anyway."""
    text = (HEADERS / "cuda.h").read_text()
    renamed = re.search(
        rf"^\s*#define {base}\s+(?:__CUDA_API_PT[SD][ZS]\()?({base}\w*)\)?", text, re.MULTILINE
    )
    if renamed and re.fullmatch(rf"{base}(_v\d)?", renamed[1]):
        return renamed[1]
    return max(re.findall(rf"CUDAAPI ({base}_v\d)\(", text), default=base)


def expected(base: str, version: int, flags: int) -> str | None:
    """The symbol that a look-up means, where the headers define it: for the newest shape."""
    shapes = versions(base)
    counterparts = [suffix for suffix in shapes if suffix]
    suffix = counterparts[0] if counterparts and flags & PER_THREAD else ""
    newest = max(shapes.get(suffix, [0]))
    return newest_symbol(base) + suffix if newest and version >= newest else None


def look_ups(library: str, call: str, folder: Path) -> list[list[str]]:
    """What a library has looked up and got, a line of witness.c each."""
    folders = [str(DRIVER.parent), *(str(each) for each in NVIDIA.glob("*/lib"))]
    seen = folder / "seen"
    body = f"import ctypes; there = (ctypes.c_char * 128)(); ctypes.CDLL({str(NVIDIA / library)!r}).{call}"
    env = environment(
        CLIENTS / "libwitness.so",
        SHIM,
        LD_LIBRARY_PATH=":".join(folders),
        STUB_DRIVER_ENDS="1",
        WITNESS=seen,
        NCCL_SOCKET_IFNAME="lo",
    )
    run([sys.executable, "-c", body], env)
    return [line.split() for line in seen.read_text().splitlines()]


@pytest.mark.parametrize("library", FIRST_CALL)
def test_a_library_of_nvidias_finds_us_where_it_should_and_nowhere_else(library: str, tmp_path: Path) -> None:
    if not (NVIDIA / library).exists():
        pytest.skip(f"{library} is in no wheel here")
    lines = look_ups(library, FIRST_CALL[library], tmp_path)
    ours = wrapped_symbols()
    by_version = wrapped = 0
    by_name: set[str] = set()
    for how, name, version, flags, status, owner, symbol in lines:
        what = f"{how} {name} {version} {flags}: {owner} {symbol}"
        if how == "dlsym":
            by_name |= {name} if owner == SHIM.name else set()
            assert (owner == SHIM.name) == (name in ours and owner != "-"), what
            assert owner != SHIM.name or symbol == name, what
            continue
        by_version += 1
        if name == "-":
            assert (status, owner) == ("1", "-"), what  # as the driver answers an empty name
            continue
        means = expected(name, int(version), int(flags))
        if means in ours:
            wrapped += 1
            assert (owner, symbol) == (SHIM.name, means), what
        elif means is not None:
            assert owner == "libcuda.so.1", what
        elif owner == SHIM.name:  # an older shape, or an older function of the same shape
            assert symbol in ours and symbol.startswith(name), what
    if "cufft" in library:  # asks for each function by its symbol
        assert {"cuLaunchKernel", "cuMemGetInfo_v2"} <= by_name
        return
    assert by_version > 400, f"{by_version} look-ups by version"
    assert wrapped > 60, f"{wrapped} of them wrapped"
    assert "cuGetProcAddress_v2" in by_name


def test_nvidias_libraries_and_their_look_alikes_are_distinguished(tmp_path: Path) -> None:
    lines = look_ups("cudnn/lib/libcudnn.so.9", "cudnnCreate(there)", tmp_path)
    names = {line[1]: line[5] for line in lines if line[0] == "dlsym"}
    assert names.get("cudnnCreate", "").startswith("libcudnn"), names


def test_every_newer_shape_of_a_wrapped_function_is_in_the_lists() -> None:
    rows = (LISTS / "driver_functions.inc").read_text()
    known: dict[str, set[int]] = {}
    for base, version in re.findall(
        r"^SPILLWAY_DRIVER(?:_PER_THREAD)?\(\w+, (\w+), (\d+)", rows, re.MULTILINE
    ):
        known.setdefault(base, set()).add(int(version))
    assert len(known) > 40
    for base, have in known.items():
        newer = [each for each in versions(base)[""] if each > min(have) and each not in have]
        assert not newer, f"{base} has another shape since {newer}"
