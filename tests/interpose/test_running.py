# SPDX-License-Identifier: Apache-2.0
"""The library in someone else's process: when it is inert, what Python gets, what is served and refused."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import CLIENTS, DRIVER, EMULATOR, LIBRARIES, PRELUDE, SHIM, environment, python, run
from headers import INCLUDE

EMULATED = {"SPILLWAY_EMULATE": "1"}
ALLOCATE = """
emulated = lambda name: process.spillway_emulator_count(name.encode())
def allocate(size):
    at = c_void_p()
    return process.cudaMalloc(byref(at), c_size_t(size)), at.value
"""


def test_it_brings_nothing_but_the_c_and_the_c_plus_plus_library_along() -> None:
    """Neither libtorch, nor libpython, nor a CUDA runtime; and no name of it is left to be found later."""
    done = run(["cat", "/proc/self/maps"], environment(SHIM, LD_BIND_NOW="1"))
    mapped = {Path(line.split()[-1]).name for line in done.stdout.splitlines() if ".so" in line}
    assert done.stderr == "" and SHIM.name in mapped
    assert {name.split(".so")[0] for name in mapped - {SHIM.name}} <= {
        *("ld-linux-x86-64", "libc", "libgcc_s", "libm", "libstdc++"),
    }


def test_a_forked_child_passes_everything_through() -> None:
    printed = python(
        ALLOCATE
        + """
allocate(4096)
sys.stdout.flush()
child = os.fork()
if child == 0:
    allocate(4096)
    print("child", process.spillway_preload_stopped(), count("cudaMalloc"), emulated("cudaMalloc"))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
allocate(4096)
print("parent", process.spillway_preload_stopped(), count("cudaMalloc"))
""",
        SHIM,
        EMULATOR,
        **EMULATED,
    )
    assert printed.splitlines() == ["child b'forked' 1 2", "parent b'' 2"]


def lasting_errors() -> list[int]:
    """The errors that all further work returns, and that require the process to end, according to cuda.h."""
    text = (INCLUDE / "cuda.h").read_text()
    found = re.findall(
        r"/\*\*((?:(?!\*/).)*?)\*/\s*CUDA_ERROR_\w+\s*=\s*(\d+)",
        text[text.index("typedef enum cudaError_enum") :],
        re.DOTALL,
    )
    said = {int(number): " ".join(why.replace("*", " ").split()) for why, number in found}
    return [number for number, why in said.items() if "process must be terminated and relaunched" in why]


def test_the_header_names_lasting_errors() -> None:
    assert {700, 719, 716} < set(lasting_errors()) and len(lasting_errors()) > 8


# Those, and memory that ECC cannot correct.
@pytest.mark.parametrize("error", [*lasting_errors(), 214])
def test_calls_pass_through_after_an_error_that_stays(error: int) -> None:
    printed = python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
for answer in (2, {error}, 0):  # out of memory passes
    driver.stub_answer(answer)
    print(driver.cuStreamSynchronize(None), process.spillway_preload_stopped(), count("cuStreamSynchronize"))
""",
        SHIM,
    )
    assert printed.splitlines() == ["2 b'' 1", f"{error} b'error' 2", "0 b'error' 2"]


def test_it_is_silent_at_exit_and_writes_its_trace_there(tmp_path: Path) -> None:
    trace = tmp_path / "with space.trace"
    body = ALLOCATE + "import atexit; atexit.register(lambda: allocate(512)); allocate(4096)"
    assert python(body, SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=trace, **EMULATED) == ""
    assert trace.read_bytes().startswith(b"SPILLPRE")


def test_a_trace_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace"
    settings = environment(SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED)
    done = run([sys.executable, "-c", PRELUDE + ALLOCATE + "allocate(4096); print('goes on')"], settings)
    assert done.stdout == "goes on\n"
    assert done.stderr == f"spillway: SPILLWAY_PRELOAD_TRACE: {path}: No such file or directory\n"


def test_disabled_it_does_nothing_at_all(tmp_path: Path) -> None:
    printed = python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
print(*owner(address(driver.cuMemAlloc_v2)), count("cuMemAlloc_v2"), process.spillway_preload_stopped(),
      os.environ.get("PYTHONPATH"), process.spillway_preload_trace_begin(b"trace"))
""",
        SHIM,
        SPILLWAY_DISABLE="1",
        SPILLWAY_BUDGET="1GiB",
        SPILLWAY_PRELOAD_TRACE=tmp_path / "trace",
    )
    assert printed == "libcuda.so.1 cuMemAlloc_v2 0 b'disabled' None 1"
    assert list(tmp_path.iterdir()) == []


def package(folder: Path) -> Path:
    """A copy of the library in a package of its own; the library's path."""
    library = folder / "spillway" / "lib" / SHIM.name
    library.parent.mkdir(parents=True)
    shutil.copy(SHIM, library)
    (folder / "spillway" / "__init__.py").touch()
    return library


# LD_PRELOAD has no way to name a path with a space but a link without one, which is followed.
@pytest.mark.parametrize(
    "setting",
    [
        "SPILLWAY_BUDGET",
        "SPILLWAY_OFFLOAD_RATIO",
        "SPILLWAY_TAG_RATIO",
        "SPILLWAY_RECOMPUTE",
        "SPILLWAY_REPORT",
    ],
)
def test_python_finds_the_package_where_a_job_is_to_offload(setting: str, tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    link = tmp_path / "link.so"
    link.symlink_to(package(folder))
    show = 'print(os.environ.get("PYTHONPATH"))'
    assert python(show, link, **{setting: "1"}) == str(folder)
    assert python(show, link, **{setting: "1", "PYTHONPATH": "/a:/b"}) == f"{folder}:/a:/b"
    assert python(show, link, **{setting: "1", "PYTHONPATH": f"/a:{folder}"}) == f"/a:{folder}"
    assert python(show, link, PYTHONPATH="/a") == "/a"
    assert python(show, link, **{setting: ""}) == "None"


@pytest.mark.parametrize("installed", ["site-packages", "dist-packages"])
def test_an_installed_package_is_found_anyway(installed: str, tmp_path: Path) -> None:
    library = package(tmp_path / installed)
    assert python('print(os.environ.get("PYTHONPATH"))', library, SPILLWAY_BUDGET="1GiB") == "None"


def test_substitution_serves_from_our_heap_and_takes_back() -> None:
    printed = python(
        ALLOCATE
        + """
result, at = allocate(4 << 20)
print(result, process.spillway_preload_refusal(), process.spillway_emulator_count(b"cudaMalloc"))
print(process.cudaMemset(c_void_p(at), 1, c_size_t(4 << 20)))
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
result = process.cudaIpcGetMemHandle(byref(Handle()), c_void_p(at))
print(result != 0, b"no CUDA IPC handle" in process.spillway_preload_refusal())
print(process.cudaFree(c_void_p(at)), process.cudaFree(c_void_p(at)) != 0, emulated("cudaFree"))
print(allocate(4 << 20)[1] == at, count("cudaMalloc"), count("cudaMalloc_bytes"))
""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD="substitute",
        **EMULATED,
    )
    assert printed.splitlines() == ["0 b'' 0", "0", "True True", "0 True 1", f"True 2 {8 << 20}"]


# cudaPeekAtLastError returns the thread's error and keeps it, cudaGetLastError returns and clears it.
def test_errors_of_served_calls_are_the_runtimes_last_error() -> None:
    printed = python(
        ALLOCATE
        + """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
last = lambda: (process.cudaPeekAtLastError(), process.cudaGetLastError(), process.cudaGetLastError())
at = allocate(4 << 20)[1]
print(last())
share = lambda: process.cudaIpcGetMemHandle(byref(Handle()), c_void_p(at))
for call in (lambda: allocate(1 << 45)[0], share):
    error = call()
    print(error != 0, last() == (error, error, 0))
print(process.cudaFree(c_void_p(at)), last())
""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD="substitute",
        **EMULATED,
    )
    assert printed.splitlines() == ["(0, 0, 0)", "True True", "True True", "0 (0, 0, 0)"]


def test_substitution_gives_nothing_to_a_capture() -> None:
    printed = python(
        ALLOCATE
        + """
stream, graph = c_void_p(), c_void_p()
process.cudaStreamCreate(byref(stream))
print(process.cudaStreamBeginCapture(stream, 2), allocate(4096)[0], emulated("cudaMalloc"),
      process.spillway_preload_refusal().decode())
print(process.cudaStreamEndCapture(stream, byref(graph)), allocate(4096)[0], emulated("cudaMalloc"))
""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD="substitute",
        **EMULATED,
    )
    assert printed.splitlines() == ["0 0 1 a CUDA graph is being captured", "0 0 1"]


def test_an_end_of_no_capture_does_not_hide_the_next_one() -> None:
    printed = python(
        ALLOCATE
        + """
stream, graph = c_void_p(), c_void_p()
process.cudaStreamCreate(byref(stream))
print(process.cudaStreamEndCapture(stream, byref(graph)) != 0, process.cudaStreamBeginCapture(stream, 2))
print(allocate(4096)[0], emulated("cudaMalloc"), process.spillway_preload_refusal().decode())
print(process.cudaStreamEndCapture(stream, byref(graph)), allocate(4096)[0], emulated("cudaMalloc"))
""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD="substitute",
        **EMULATED,
    )
    assert printed.splitlines() == ["True 0", "0 1 a CUDA graph is being captured", "0 0 1"]


# Of the errors that ending a capture has: it was invalid, and a stream was not joined, end it; the wrong
# stream and the wrong thread do not.
@pytest.mark.parametrize(("error", "ends"), [(901, True), (904, True), (903, False), (908, False)])
def test_a_capture_ends_with_the_errors_that_end_it(error: int, ends: bool) -> None:
    printed = python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
at = c_uint64()
driver.cuStreamBeginCapture_v2(c_void_p(5), 0)
driver.stub_answer({error})
driver.cuStreamEndCapture(c_void_p(5), None)
driver.stub_answer(0)
driver.cuMemAlloc_v2(byref(at), c_size_t(4096))
print(b"capture" in process.spillway_preload_refusal())
""",
        SHIM,
        SPILLWAY_PRELOAD="substitute",
    )
    assert printed == str(not ends)


@pytest.mark.parametrize("begin", ["cuStreamBeginCapture_v2", "cuStreamBeginCaptureToGraph_ptsz"])
def test_a_capture_is_known_by_every_name_that_begins_one(begin: str) -> None:
    printed = python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
at = c_uint64()
refused = lambda: driver.cuMemAlloc_v2(byref(at), c_size_t(4096)) or process.spillway_preload_refusal()
print(driver.{begin}(c_void_p(5), None, None, None, c_size_t(0), 2), refused())
print(count({begin!r}))
""",
        SHIM,
        SPILLWAY_PRELOAD="substitute",
    )
    assert printed.splitlines() == ["0 b'a CUDA graph is being captured'", "1"]


def with_a_late_block(size: int, script: str) -> str:
    """Output of the script, which has a served block `at` of `size` bytes, memory `host` of the host and a
    `stream`, on a device that is late."""
    return python(
        ALLOCATE
        + f"""
stream, host = c_void_p(), c_void_p()
size = c_size_t({size})
process.cudaStreamCreateWithFlags(byref(stream), 1)
process.cudaHostAlloc(byref(host), size, 0)
result, at = allocate({size})
{script}""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD="substitute",
        SPILLWAY_EMULATE_SCHEDULE="late",
        **EMULATED,
    )


def test_a_served_block_is_freed_behind_its_uses_on_any_stream() -> None:
    printed = with_a_late_block(
        1 << 20,
        """
process.cudaMemset(c_void_p(at), 7, size)
process.cudaDeviceSynchronize()
process.cudaMemcpyAsync(host, c_void_p(at), size, 2, stream)
first = ctypes.cast(host, ctypes.POINTER(ctypes.c_ubyte))
print(first[0], process.cudaFree(c_void_p(at)), first[0])
""",
    )
    assert printed == "0 0 7"


def test_a_served_block_may_be_freed_in_the_order_of_a_stream() -> None:
    printed = with_a_late_block(
        4 << 20,
        """
process.cudaMemsetAsync(c_void_p(at), 7, size, stream)
process.cudaMemcpyAsync(host, c_void_p(at), size, 2, stream)
print(process.cudaFreeAsync(c_void_p(at), stream), count("cudaFreeAsync"), emulated("cudaFreeAsync"))
print(process.cudaFree(c_void_p(at)) != 0, allocate(4 << 20)[1] == at)
print(ctypes.cast(host, ctypes.POINTER(ctypes.c_ubyte))[0])
""",
    )
    assert printed.splitlines() == ["0 1 0", "True True", "7"]


def test_two_copies_are_reported_of_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / SHIM.name
    shutil.copy(SHIM, other)
    body = PRELUDE + "n = c_int(); print(process.cudaGetDeviceCount(byref(n)), n.value)"
    settings = environment(other, SHIM, EMULATOR, SPILLWAY_REPORT=tmp_path / "report", **EMULATED)
    done = run([sys.executable, "-c", body], settings)
    assert done.stdout == "0 1\n"
    assert done.stderr == (
        f"spillway: two copies of its preload library are in this process, {other} and {SHIM}: "
        "take one out of LD_PRELOAD\n"
    )


@pytest.mark.parametrize(
    ("settings", "others", "reason"),
    [
        ({"WORLD_SIZE": "2"}, [], "WORLD_SIZE=2"),
        ({}, [CLIENTS / "libchain.so"], "libchain.so has its own cudaMalloc"),
        ({"SPILLWAY_PRELOAD": "observe"}, [], ""),
        ({"WORLD_SIZE": "1"}, [], None),
    ],
)
def test_substitution_is_refused_with_a_reason(
    settings: dict[str, str], others: list[Path], reason: str | None
) -> None:
    printed = python(
        ALLOCATE
        + """
print(allocate(4096)[0], emulated("cudaMalloc"), process.spillway_preload_refusal().decode())
""",
        SHIM,
        *others,
        EMULATOR,
        **({"SPILLWAY_PRELOAD": "substitute"} | EMULATED | settings),
    )
    if reason is None:
        assert printed == "0 0"
    else:
        assert printed.startswith("0 1") and reason in printed


def test_a_refusal_is_logged_once_where_logging_is_on() -> None:
    env = environment(
        SHIM, EMULATOR, SPILLWAY_PRELOAD="substitute", WORLD_SIZE="8", SPILLWAY_LOG="1", **EMULATED
    )
    done = run([str(CLIENTS / "preload_client"), "1", "1"], env)
    assert done.stderr.count("WORLD_SIZE=8") == 1


def test_a_setting_that_cannot_be_read_changes_nothing() -> None:
    body = (
        ALLOCATE
        + 'print(allocate(4096)[0], count("cudaMalloc"), process.spillway_emulator_count(b"cudaMalloc"))'
    )
    assert python(body, SHIM, EMULATOR, SPILLWAY_PRELOAD="serve", **EMULATED) == "0 1 1"


def test_the_library_is_where_it_is_documented_to_be() -> None:
    assert SHIM.exists() and EMULATOR.exists() and (LIBRARIES / "libspillway.so").exists()
