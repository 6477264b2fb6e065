# SPDX-License-Identifier: Apache-2.0
"""Every way to a driver function leads to the wrapper of its own shape, and nothing else is touched."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import CLIENTS, DRIVER, EMULATOR, SHIM, environment, python, run

CUDART = CLIENTS / "runtime" / "libcudart.so.13"

GET = f"""
driver = ctypes.CDLL({str(DRIVER)!r})
driver.stub_last.restype = c_char_p
def get(name, version, flags, status=None):
    found = c_void_p()
    result = driver.cuGetProcAddress_v2(name.encode(), byref(found), version, c_uint64(flags), status)
    return result, found.value
"""


def test_names_of_ours_are_wrapped_by_dlsym_and_others_are_not() -> None:
    printed = python(
        GET
        + """
names = "cuMemAlloc_v2 cuMemcpyHtoDAsync_v2_ptsz cuGetProcAddress cuMemAlloc cuInit stub_last"
for name in names.split():
    print(name, *owner(address(getattr(driver, name))))
""",
        SHIM,
    )
    assert printed.splitlines() == [
        "cuMemAlloc_v2 libspillway_preload.so cuMemAlloc_v2",
        "cuMemcpyHtoDAsync_v2_ptsz libspillway_preload.so cuMemcpyHtoDAsync_v2_ptsz",
        "cuGetProcAddress libspillway_preload.so cuGetProcAddress",
        "cuMemAlloc libcuda.so.1 cuMemAlloc",
        "cuInit libcuda.so.1 cuInit",
        "stub_last libcuda.so.1 stub_last",
    ]


@pytest.mark.parametrize(
    ("name", "version", "flags", "ours", "symbol"),
    [
        ("cuMemAlloc", 3020, 0, True, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, 2, True, "cuMemAlloc_v2"),  # has no counterpart
        ("cuMemAlloc", 2000, 0, False, "stub_older"),
        ("cuMemcpyHtoDAsync", 3020, 0, True, "cuMemcpyHtoDAsync_v2"),
        ("cuMemcpyHtoDAsync", 7000, 1, True, "cuMemcpyHtoDAsync_v2"),
        ("cuMemcpyHtoDAsync", 7000, 2, True, "cuMemcpyHtoDAsync_v2_ptsz"),
        ("cuMemcpyHtoDAsync", 6000, 2, False, "stub_older"),
        ("cuMemcpyBatchAsync", 12080, 0, True, "cuMemcpyBatchAsync"),
        ("cuMemcpyBatchAsync", 12090, 2, True, "cuMemcpyBatchAsync_ptsz"),
        ("cuMemcpyBatchAsync", 13000, 0, True, "cuMemcpyBatchAsync_v2"),
        ("cuMemcpyBatchAsync", 13000, 2, True, "cuMemcpyBatchAsync_v2_ptsz"),
        ("cuMemcpy2D", 3020, 0, True, "cuMemcpy2D_v2"),
        ("cuMemcpy3DPeer", 7000, 2, True, "cuMemcpy3DPeer_ptds"),
        ("cuMemsetD8", 7000, 2, True, "cuMemsetD8_v2_ptds"),
        ("cuStreamBeginCaptureToGraph", 12030, 0, True, "cuStreamBeginCaptureToGraph"),
        ("cuEventRecord", 2000, 0, True, "cuEventRecord"),
        ("cuEventRecord", 7000, 2, True, "cuEventRecord_ptsz"),
        ("cuEventRecord", 6050, 2, False, "stub_older"),
        ("cuStreamWaitEvent", 13000, 2, True, "cuStreamWaitEvent_ptsz"),
        ("cuStreamWaitValue32", 11060, 2, True, "cuStreamWaitValue32_ptsz"),
        ("cuStreamWaitValue32", 11070, 0, True, "cuStreamWaitValue32_v2"),
        ("cuMemPrefetchAsync", 12010, 2, True, "cuMemPrefetchAsync_ptsz"),
        ("cuMemPrefetchAsync", 12020, 2, True, "cuMemPrefetchAsync_v2_ptsz"),
        ("cuMemAdvise", 12020, 2, True, "cuMemAdvise_v2"),  # has no counterpart
        ("cuMemPoolCreate", 11020, 0, True, "cuMemPoolCreate"),
        ("cuMulticastBindAddr", 12010, 0, True, "cuMulticastBindAddr"),
        ("cuStreamBeginCapture", 10000, 2, True, "cuStreamBeginCapture_ptsz"),
        ("cuStreamBeginCapture", 10010, 0, True, "cuStreamBeginCapture_v2"),
        ("cuLaunchKernel", 4000, 0, True, "cuLaunchKernel"),
        ("cuLaunchKernel", 7000, 2, True, "cuLaunchKernel_ptsz"),
        ("cuCtxSynchronize", 12000, 0, True, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, 0, True, "cuCtxSynchronize_v2"),
        ("cuGetProcAddress", 11030, 0, True, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, True, "cuGetProcAddress_v2"),
        ("cuMemAlloc", 99000, 0, False, "cuMemAlloc_v2"),  # nothing knows its shape yet
        ("cuDeviceGet", 2000, 0, False, "stub_other"),
        ("cudnnCreate", 13000, 0, False, "stub_other"),
    ],
)
def test_a_version_and_its_flags_get_the_function_of_that_shape(
    name: str, version: int, flags: int, ours: bool, symbol: str
) -> None:
    printed = python(
        GET
        + f"""
status = c_int(-1)
result, found = get({name!r}, {version}, {flags}, byref(status))
print(result, status.value, *owner(found))
""",
        SHIM,
    )
    library = "libspillway_preload.so" if ours else "libcuda.so.1"
    assert printed == f"0 0 {library} {symbol}"


def test_a_wrapper_passes_on_to_the_function_that_it_stands_for() -> None:
    printed = python(
        GET
        + """
at = c_uint64(4096)
wanted = ("cuMemcpyHtoDAsync", 3020, 0), ("cuMemcpyHtoDAsync", 7000, 2), ("cuMemcpyAsync", 7000, 2)
for name, version, flags in wanted:
    copy = ctypes.CFUNCTYPE(c_int, c_uint64, c_void_p, c_size_t, c_void_p)(get(name, version, flags)[1])
    print(copy(4096, None, 64, None), driver.stub_last().decode())
print(count("cuMemcpyHtoDAsync_v2"), count("cuMemcpyHtoDAsync_v2_ptsz_bytes"), count("newer_look_ups"))
""",
        SHIM,
    )
    assert printed.splitlines() == [
        "0 cuMemcpyHtoDAsync_v2",
        "0 cuMemcpyHtoDAsync_v2_ptsz",
        "0 cuMemcpyAsync_ptsz",
        "1 64 0",
    ]


def test_launches_take_a_quick_way_to_their_own_functions_and_counts() -> None:
    rows = (Path(__file__).parents[2] / "interpose" / "driver_functions.inc").read_text()
    pattern = r"^SPILLWAY_DRIVER_PER_THREAD\((\w+),.*, (_ptsz), k(?:Graph)?Launch,"
    names = [
        name + end
        for name, counterpart in re.findall(pattern, rows, re.MULTILINE)
        for end in ("", counterpart)
    ]
    assert len(names) == 8
    printed = python(
        GET
        + f"""
for name in {names!r}:
    driver.stub_answer(7)
    for _ in range(3):
        getattr(driver, name)(*[c_void_p(1)] * 11)
    print(name, driver.stub_last().decode(), getattr(driver, name)(*[c_void_p(1)] * 11))
print([count(name) for name in {names!r}], count("cuMemsetD32Async_ptsz"), count("cuStreamCreate"))
""",
        SHIM,
    )
    assert printed.splitlines() == [f"{name} {name} 7" for name in names] + [f"{[4] * 8} 0 0"]


def test_what_the_driver_refuses_stays_refused() -> None:
    printed = python(
        GET
        + """
status = c_int(-1)
print(*get("", 12000, 0), *get("cuNoSuch", 12000, 0), *get("cuNoSuch", 12000, 0, byref(status)), status.value)
print(get("cuMemAlloc", 99000, 0)[0], count("newer_look_ups"))
four = ctypes.CFUNCTYPE(c_int, c_char_p, c_void_p, c_int, c_uint64)(get("cuGetProcAddress", 11030, 0)[1])
found = c_void_p()
print(four(b"cuMemFree", ctypes.addressof(found), 3020, 0), *owner(found.value))
""",
        SHIM,
    )
    assert printed.splitlines() == [
        "1 None 500 None 0 None 1",
        "0 1",
        "0 libspillway_preload.so cuMemFree_v2",
    ]


def test_a_process_without_cuda_does_not_find_it_in_us() -> None:
    printed = python(
        """
names = "cuMemAlloc_v2", "cudaMalloc", "cuInit", "spillway_preload_count"
print([hasattr(process, name) for name in names])
""",
        SHIM,
    )
    assert printed == "[False, False, False, True]"


def test_nor_does_one_where_we_are_inert() -> None:
    body = """
names = "cuMemAlloc_v2", "cudaMalloc"
print([hasattr(process, name) for name in names], process.spillway_preload_stopped())
sys.stdout.flush()
if os.environ.get("SPILLWAY_DISABLE") is None and os.fork() == 0:
    print([hasattr(ctypes.CDLL(None), name) for name in names], process.spillway_preload_stopped())
    sys.stdout.flush()
    os._exit(0)
os.environ.get("SPILLWAY_DISABLE") or os.wait()
"""
    assert python(body, SHIM, SPILLWAY_DISABLE="1") == "[False, False] b'disabled'"
    assert python(body, SHIM).splitlines() == ["[False, False] b''", "[False, False] b'forked'"]
    emulated = python(body, SHIM, EMULATOR, SPILLWAY_EMULATE="1", SPILLWAY_DISABLE="1")
    assert emulated == "[False, True] b'disabled'"


def test_eight_threads_resolve_at_once_beside_direct_linkage() -> None:
    env = environment(SHIM, LD_LIBRARY_PATH=DRIVER.parent)
    run([str(CLIENTS / "preload_resolve"), "libcuda.so.1", SHIM.name], env)


@pytest.mark.parametrize("order", [("chain", "shim"), ("shim", "chain")])
def test_another_interposer_is_passed_through_once(order: tuple[str, str]) -> None:
    libraries = {"chain": CLIENTS / "libchain.so", "shim": SHIM}
    printed = python(
        """
at = c_void_p()
print(process.cudaMalloc(byref(at), c_size_t(4096)), process.chain_calls(), count("cudaMalloc"))
""",
        *[libraries[each] for each in order],
        EMULATOR,
        SPILLWAY_EMULATE="1",
    )
    assert printed == "0 1 1"


#: A libcudart that the program opened itself, beside the one that its calls by name reach.
BY_HANDLE = f"""
runtime = ctypes.CDLL({str(CUDART)!r})
runtime.stub_runtime_last.restype = c_char_p
runtime.stub_runtime_answer(35)
process.dlvsym.restype = process.dlsym.restype = c_void_p
at, device = c_void_p(), c_int()
wrapped = "cudaMalloc cudaFree cudaMemcpyAsync cudaStreamSynchronize cudaHostAlloc".split()
others = "cudaSetDevice cudaGetDevice cudaPeekAtLastError".split()
"""


def test_a_libcudart_by_handle_gives_the_emulated_functions() -> None:
    printed = python(
        BY_HANDLE
        + """
print({owner(address(getattr(runtime, name)))[0] for name in wrapped})
print({owner(address(getattr(runtime, name)))[0] for name in others})
print(owner(address(runtime.cudaNothingHasThis))[0])
print(runtime.cudaMalloc(byref(at), c_size_t(4096)), at.value is not None, count("cudaMalloc"))
print(runtime.cudaGetDevice(byref(device)), runtime.cudaPeekAtLastError(), runtime.cudaFree(at))
print(process.cudaMalloc(byref(at), c_size_t(4096)), count("cudaMalloc"), runtime.stub_runtime_last())
""",
        SHIM,
        EMULATOR,
        SPILLWAY_EMULATE="1",
    )
    assert printed.splitlines() == [
        "{'libspillway_preload.so'}",
        "{'libspillway_emulator.so'}",
        "libcudart.so.13",
        "0 True 1",
        "0 0 0",
        "0 2 b''",
    ]


def test_so_it_does_where_we_are_inert() -> None:
    body = (
        BY_HANDLE
        + """
print({owner(address(getattr(runtime, name)))[0] for name in wrapped + others}, runtime.cudaFree(None))
sys.stdout.flush()
if os.environ.get("SPILLWAY_DISABLE") is None and os.fork() == 0:
    print({owner(address(getattr(ctypes.CDLL(runtime._name), name)))[0] for name in wrapped + others})
    sys.stdout.flush()
    os._exit(0)
os.environ.get("SPILLWAY_DISABLE") or os.wait()
"""
    )
    emulated = "{'libspillway_emulator.so'}"
    disabled = python(body, SHIM, EMULATOR, SPILLWAY_EMULATE="1", SPILLWAY_DISABLE="1")
    assert disabled == f"{emulated} 0"
    assert python(body, SHIM, EMULATOR, SPILLWAY_EMULATE="1").splitlines()[-1] == emulated


def test_a_look_up_alone_changes_nothing() -> None:
    look = "".join(f"runtime.{name}\n" for name in ("cudaMalloc", "cudaFree"))
    use = """
print(process.cudaMalloc(byref(at), c_size_t(4096)), at.value is not None, runtime.stub_runtime_last())
print(process.dlerror())
"""
    emulated = dict(SPILLWAY_EMULATE="1")
    with_emulator = [python(BY_HANDLE + first + use, SHIM, EMULATOR, **emulated) for first in ("", look)]
    assert with_emulator == ["0 True b''\n0"] * 2
    through_another = "process.chain_calls\n" + use + "print(process.chain_calls())\n"
    chain = CLIENTS / "libchain.so"
    without = [python(BY_HANDLE + first + through_another, SHIM, chain, CUDART) for first in ("", look)]
    assert without == ["35 False b'cudaMalloc'\n0\n1"] * 2


def test_two_runtimes_keep_their_own_functions() -> None:
    """As where one package brings libcudart.so.12 and another libcudart.so.13."""
    printed = python(
        BY_HANDLE
        + f"""
import pathlib, shutil, tempfile
with tempfile.TemporaryDirectory() as folder:
    copy = shutil.copy({str(CUDART)!r}, pathlib.Path(folder) / "libcudart-other.so")
    other = ctypes.CDLL(copy)
    other.stub_runtime_last.restype = c_char_p
other.stub_runtime_answer(2)
print(other.cudaFree(None), runtime.cudaFree(None), process.cudaFree(None))
""",
        SHIM,
        CUDART,
    )
    assert printed == "2 35 35"


def test_a_malloc_that_looks_itself_up_is_no_obstacle() -> None:
    other = CLIENTS / "libplain_malloc.so"
    for order in ((other, SHIM), (SHIM, other)):
        printed = python("print(process.plain_malloc_calls() > 0)", *order, EMULATOR, SPILLWAY_EMULATE="1")
        assert printed == "True"


def test_jemalloc_beside_us() -> None:
    found = os.environ.get("SPILLWAY_TEST_JEMALLOC") or ctypes.util.find_library("jemalloc")
    if not found:
        pytest.skip("jemalloc is not installed; the test above has a malloc of its own")
    for order in ((found, SHIM), (SHIM, found)):
        run([str(CLIENTS / "preload_client"), "1", "1"], environment(*order, EMULATOR, SPILLWAY_EMULATE="1"))


def test_the_address_sanitizer_beside_us() -> None:
    found = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip("gcc has no libasan.so")
    options = "detect_leaks=0:verify_asan_link_order=0"
    env = environment(Path(found).resolve(), SHIM, EMULATOR, SPILLWAY_EMULATE="1", ASAN_OPTIONS=options)
    run([str(CLIENTS / "preload_client"), "1", "1"], env)
