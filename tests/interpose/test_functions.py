# SPDX-License-Identifier: Apache-2.0
"""Every function of NVIDIA's headers is wrapped or left out for a reason. Wrapped functions are traced with
the address, bytes and stream that the header's own names for its parameters say."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import CLIENTS, DRIVER, EMULATOR, SHIM, python
from headers import (
    RUNTIME,
    Parameter,
    Wrapped,
    driver_functions,
    driver_types,
    left_out,
    runtime_functions,
    wrapped,
)
from spillway.preload_trace import read_preload_trace

CUDART = CLIENTS / "runtime" / "libcudart.so.13"
STREAM, OUT, PITCH = 0x5550, 0x7770, 512
WIDTH, HEIGHT, DEPTH = 24, 5, 3
BOX = WIDTH * HEIGHT * DEPTH
STREAMS = ("CUstream", "cudaStream_t")


def words(**at: int) -> list[int]:
    """What lies where a parameter points: numbers of 64 bits by their place, "w3=7"."""
    found = [0] * 64
    for place, value in at.items():
        found[int(place[1:])] = value
    return found


#: Descriptions in memory: what is written there, and how many bytes that means.
DESCRIPTIONS = {
    "CUDA_MEMCPY2D_v2*": (words(w14=WIDTH, w15=HEIGHT), WIDTH * HEIGHT),
    "CUDA_MEMCPY3D_v2*": (words(w22=WIDTH, w23=HEIGHT, w24=DEPTH), BOX),
    "CUDA_MEMCPY3D_PEER_v1*": (words(w22=WIDTH, w23=HEIGHT, w24=DEPTH), BOX),
    "cudaMemcpy3DParms*": (words(w16=WIDTH, w17=HEIGHT, w18=DEPTH, w19=3), BOX),
    "cudaMemcpy3DPeerParms*": (words(w18=WIDTH, w19=HEIGHT, w20=DEPTH), BOX),
    "CUDA_MEMCPY3D_BATCH_OP_v1*": (
        words(w10=WIDTH, w11=HEIGHT, w12=DEPTH, w24=WIDTH, w25=HEIGHT, w26=1),
        BOX + WIDTH * HEIGHT,
    ),
    "CUmemDecompressParams*": (words(w1=70, w9=7), 77),
    "CUDA_ARRAY_DESCRIPTOR_v2*": (words(w0=WIDTH, w1=HEIGHT, w2=0x20 | 2 << 32), WIDTH * HEIGHT * 8),
    "CUDA_ARRAY3D_DESCRIPTOR_v2*": (words(w0=WIDTH, w1=HEIGHT, w2=DEPTH, w3=0x10 | 4 << 32), BOX * 8),
    "CUmulticastObjectProp*": (words(w1=7 << 20), 7 << 20),
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1*": (words(w3=3 << 20), 3 << 20),
    "cudaExternalMemoryHandleDesc*": (words(w3=3 << 20), 3 << 20),
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1*": (words(w0=1, w1=5 << 20), 5 << 20),
    "cudaExternalMemoryBufferDesc*": (words(w0=1, w1=5 << 20), 5 << 20),
    "CUlaunchConfig*": (words(w4=STREAM), 0),
    "cudaLaunchConfig_t*": (words(w4=STREAM), 0),
    "cudaChannelFormatDesc*": (words(w0=32 | 16 << 32), 6),  # bytes of one element
}
#: Structs that are passed by value: fields of 32 bits, or words of 64.
VALUES = {
    "dim3": (4, [1, 1, 1]),
    "cudaExtent": (8, [WIDTH, HEIGHT, DEPTH]),
    "cudaPitchedPtr": (8, [OUT, PITCH, WIDTH, HEIGHT]),
    "CUmemLocation_v1": (4, [1, 0]),
    "CUipcMemHandle_v1": (8, [0] * 8),
    "CUipcEventHandle_v1": (8, [0] * 8),
    "cudaIpcMemHandle_t": (8, [0] * 8),
    "cudaIpcEventHandle_t": (8, [0] * 8),
}
SIZES = ("bytesize", "ByteCount", "size", "count", "N", "length", "minBytesToKeep")
#: Functions that concern no memory; their counts have other meanings.
NO_BYTES = ("PoolSet", "Value", "Launch", "GraphInstantiate")
#: What the headers call memory and handles that a call is about; the first of them is reported.
ADDRESSES = {
    *("dptr", "pdptr", "devPtr", "ptr", "ptr_out", "pp", "p", "pHost", "pitchedDevPtr", "addr"),
    *("dst", "dstDevice", "dstArray", "pHandle", "hArray", "hMipmappedArray", "array", "mipmappedArray"),
    *("handle", "mcHandle", "extMem", "extMem_out", "pool", "memPool", "pool_out"),
    *("f", "func", "fn", "callback", "phEvent", "hEvent", "event"),
    *("phGraph", "phGraphClone", "hGraph", "pGraph", "pGraphClone", "graph"),
    *("phGraphExec", "hGraphExec", "pGraphExec", "graphExec"),
}
#: Where it is another one: of copies to the host their source.
OTHER_ADDRESSES = {
    "cuMemcpyDtoH": "srcDevice",
    "cuMemcpyDtoHAsync": "srcDevice",
    "cuMemcpyAtoH": "srcArray",
    "cuMemcpyAtoHAsync": "srcArray",
    "cuMemGetHandleForAddressRange": "dptr",
    "cuMemExportToShareableHandle": "handle",
    "cuCtxDestroy": "ctx",
}


def value_of(function: Wrapped, place: int, stream: int) -> Any:
    """What the test passes: a number, words in memory, or a struct."""
    parameter = function.parameters[place]
    counted = {"CUmemDecompressParams*", "size_t*"} & {each.type for each in function.parameters}
    if parameter.type in STREAMS:
        return stream
    if parameter.type in DESCRIPTIONS:
        content = list(DESCRIPTIONS[parameter.type][0])
        if "aunchConfig" in parameter.type:
            content[4] = stream
        return content
    if parameter.type in VALUES:
        return {"bytes": VALUES[parameter.type][0], "values": VALUES[parameter.type][1]}
    if parameter.type == "cudaPitchedPtr*":
        return words(w0=OUT, w1=PITCH)
    if parameter.type == "size_t*" and parameter.name == "sizes":
        return words(w0=100, w1=23)
    if parameter.points and parameter.type != "void*":
        return words(w0=PITCH if "itch" in parameter.name else STREAM if is_stream(parameter) else OUT)
    if parameter.name == "numParams" or (parameter.name == "count" and counted):
        return 2
    return 3 if parameter.type == "cudaMemcpyKind" else 0x1000 + 16 * place


def is_stream(parameter: Parameter) -> bool:
    return parameter.type.rstrip("*") in STREAMS


def numbers(function: Wrapped) -> dict[str, int]:
    """The plain numbers among what the test passes, by name."""
    passed = {each.name: value_of(function, place, STREAM) for place, each in enumerate(function.parameters)}
    return {name: value for name, value in passed.items() if isinstance(value, int)}


def expected_bytes(function: Wrapped) -> int:
    given = numbers(function)
    types = {each.type for each in function.parameters}
    width = next((given[each] for each in ("Width", "width", "WidthInBytes") if each in given), 0)
    height = next((given[each] for each in ("Height", "height") if each in given), 0)
    if function.kind in NO_BYTES:
        return 0
    if "cudaChannelFormatDesc*" in types:
        return DESCRIPTIONS["cudaChannelFormatDesc*"][1] * (width * height or BOX)
    if "cudaPitchedPtr*" in types:
        return PITCH * HEIGHT * DEPTH
    for each in function.parameters:
        if each.type in DESCRIPTIONS:
            return DESCRIPTIONS[each.type][1]
        if each.type == "size_t*" and each.name in ("sizes", "pPitch", "pitch"):
            return 123 if each.name == "sizes" else PITCH * height
    if "cudaExtent" in types:
        return BOX
    item = next((size for name, size in (("D16", 2), ("D32", 4)) if name in function.base), 1)
    item = next(
        (size for name, size in (("2D16", 2), ("2D32", 4), ("2D8", 1)) if name in function.base), item
    )
    sizes = [given[name] for name in SIZES if Parameter("size_t", name) in function.parameters]
    return (width * height or (sizes or [0])[0]) * item


def expected_stream(function: Wrapped, stream: int) -> int:
    own = 2 if function.suffix else 0  # CU_STREAM_PER_THREAD
    for each in function.parameters:
        if is_stream(each) or "aunchConfig" in each.type:
            return STREAM if each.type.rstrip("*") != each.type and is_stream(each) else stream or own
    return own if function.suffix == "_ptds" else 0


def expected_address(function: Wrapped) -> int:
    names = ADDRESSES - {"handle", "pHandle"} if function.kind == "IpcGet" else ADDRESSES
    names = {OTHER_ADDRESSES[function.base]} if function.base in OTHER_ADDRESSES else names
    for place, each in enumerate(function.parameters):
        if each.name in names:
            value = value_of(function, place, STREAM)
            if isinstance(value, dict):
                return value["values"][0]
            return value[0] if isinstance(value, list) else value
    return 0


def traced(stream: int, path: Path) -> list[tuple[str, str, int, int, int]]:
    """The trace of one call of every wrapped function: symbol, next, address, bytes, stream."""
    calls = [
        (each.symbol, [value_of(each, place, stream) for place in range(len(each.parameters))])
        for each in wrapped()
        if each.kind not in ("LookUp", "PrivateTable")
    ]
    work = path.with_suffix(".json")
    work.write_text(json.dumps(calls))
    printed = python(
        f"""
import json
driver, runtime = ctypes.CDLL({str(DRIVER)!r}), ctypes.CDLL({str(CUDART)!r})
driver.stub_last.restype = runtime.stub_runtime_last.restype = c_char_p
def passed(value):
    if isinstance(value, int): return c_uint64(value)
    if isinstance(value, list): return (c_uint64 * len(value))(*value)
    kind = ctypes.c_uint32 if value["bytes"] == 4 else c_uint64
    names = [f"f{{i}}" for i in range(len(value["values"]))]
    fields = {{"_fields_": [(name, kind) for name in names]}}
    return type("Value", (ctypes.Structure,), fields)(*value["values"])
for symbol, values in json.load(open({str(work)!r})):
    library = runtime if symbol.startswith("cuda") else driver
    assert getattr(library, symbol)(*map(passed, values)) == 0
    print((runtime.stub_runtime_last() if library is runtime else driver.stub_last()).decode())
""",
        SHIM,
        SPILLWAY_PRELOAD_TRACE=path,
    )
    reached = printed.splitlines()
    assert reached == [symbol for symbol, _ in calls]
    return [
        (each.function, each.kind, each.address, each.bytes, each.stream)
        for each in read_preload_trace(path).calls
    ]


def test_every_function_of_the_headers_is_wrapped_or_left_out_for_a_reason() -> None:
    patterns = left_out()
    ours = {each.base for each in wrapped()}
    every = driver_functions() | set(runtime_functions())
    assert len(every) > 700 and len(patterns) > 90
    matching = {name: [each for each in patterns if fnmatch.fnmatchcase(name, each)] for name in every}
    assert [name for name in sorted(every) if name not in ours and not matching[name]] == []
    assert [name for name in sorted(ours & every) if matching[name]] == []
    used = {each for found in matching.values() for each in found}
    assert [each for each in patterns if each not in used] == []


def test_every_counterpart_for_the_threads_own_stream_is_wrapped() -> None:
    ours = {each.symbol for each in wrapped()}
    for each in wrapped():
        if each.version:
            oldest = min(row.version for row in wrapped() if row.base == each.base and row.suffix == "")
            counterparts = [
                key for key in driver_types() if key[0] == each.base and key[2] and key[1] >= oldest
            ]
            rows = {(row.base, row.version, row.suffix) for row in wrapped()}
            assert {*counterparts} <= rows, each.symbol
    exports = subprocess.run(["nm", "-D", str(RUNTIME)], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r" T (cuda\w+)", exports))
    counterparts = {
        name for name in names if re.sub("_pt[sd][sz]$", "", name) in ours and re.search("_pt[sd][sz]$", name)
    }
    assert len(counterparts) > 40
    assert counterparts - ours == {
        "cudaGetDriverEntryPointByVersion_ptsz"
    }  # its default is another one: see the driver's


@pytest.mark.parametrize("stream", [STREAM, 0])
def test_every_wrapped_function_is_reported_with_its_address_bytes_and_stream(
    stream: int, tmp_path: Path
) -> None:
    calls = [each for each in wrapped() if each.kind not in ("LookUp", "PrivateTable")]
    expected = [
        (each.symbol, expected_address(each), expected_bytes(each), expected_stream(each, stream))
        for each in calls
    ]
    found = [(name, *rest) for name, _, *rest in traced(stream, tmp_path / "trace")]
    wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert not wrong, "\n".join(f"traced {each}, expected {other}" for each, other in wrong)
    assert len(found) > 400


def test_no_runtime_function_is_wrapped_whose_arguments_differ_between_runtimes() -> None:
    """Between CUDA 12.8's header and CUDA 13.0's."""
    graphs = ("NodeGetDependencies", "NodeGetDependentNodes", "GetEdges", "AddNode")
    differ = {f"cudaGraph{each}" for each in (*graphs, "AddDependencies", "RemoveDependencies")}
    differ |= {"cudaMemAdvise", "cudaMemPrefetchAsync", "cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync"}
    differ |= {"cudaStreamGetCaptureInfo", "cudaStreamUpdateCaptureDependencies"}
    differ |= {
        "cudaGetDeviceProperties",
        "cudaSignalExternalSemaphoresAsync",
        "cudaWaitExternalSemaphoresAsync",
    }
    assert differ & {each.base for each in wrapped()} == set()


def test_the_emulated_gpu_has_or_refuses_by_name_all_that_is_wrapped() -> None:
    exports = subprocess.run(["nm", "-D", str(EMULATOR)], capture_output=True, text=True, check=True).stdout
    there = set(re.findall(r" T (cuda\w+)", exports))
    assert [each.symbol for each in wrapped() if not each.version and each.symbol not in there] == []
    newest: dict[str, int] = {}
    for each in wrapped():
        newest[each.base] = max(newest.get(each.base, 0), each.version)
    driver = {base: version for base, version in newest.items() if version}
    del driver["cuGraphInstantiate"]  # since CUDA 12 the headers mean cuGraphInstantiateWithFlags
    printed = python(
        f"""
process.spillway_emulator_proc_address.restype = c_void_p
print([base for base, version in {driver!r}.items()
       if process.spillway_emulator_proc_address(base.encode(), version) is None])
print(process.cudaMalloc3D(None, None), process.cudaMemcpyAsync_ptsz(None, None, None, 0, None))
print(count("cudaMalloc3D"), process.spillway_emulator_count(b"cudaMemcpyAsync_ptsz"))
""",
        SHIM,
        EMULATOR,
        SPILLWAY_EMULATE="1",
        SPILLWAY_LOG="0",  # a refusal is a line on stderr
    )
    assert printed.splitlines() == ["[]", "801 801", "1 1"]
