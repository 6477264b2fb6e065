# SPDX-License-Identifier: Apache-2.0
"""`compile_kernels.py ARCHITECTURE FILE`: the probe's kernels as a cubin for, say, sm_90.

By nvcc where it is installed, otherwise by NVRTC, which torch's wheels bring.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cu")


def find_nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def by_nvcc(nvcc: str, architecture: str) -> bytes:
    command = [nvcc, "-O2", "--cubin", f"-arch={architecture}", "-o", "/dev/stdout", str(SOURCE)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"compile_kernels: nvcc for {architecture} ended with status {done.returncode}")
    return done.stdout


def load_nvrtc() -> ctypes.CDLL:
    folder = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "lib"
    for library in [*sorted(folder.glob("libnvrtc.so.*")), "libnvrtc.so.13", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(str(library))
        except OSError:
            continue
    raise SystemExit("compile_kernels: neither nvcc nor NVRTC (libnvrtc.so.13) was found; torch brings NVRTC")


def by_nvrtc(nvrtc: ctypes.CDLL, architecture: str, source: Path = SOURCE) -> bytes:
    program = ctypes.c_void_p()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), b"kernels.cu", 0, None, None))
    failed = nvrtc.nvrtcCompileProgram(program, 1, options)
    if failed:
        check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise SystemExit(f"compile_kernels: NVRTC for {architecture}: {log.value.decode().strip()}")
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    image = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, image))
    return image.raw


def check(result: int) -> None:
    if result:
        raise SystemExit(f"compile_kernels: NVRTC ended with error {result}")


def main(architecture: str, target: str) -> None:
    nvcc = find_nvcc()
    image = by_nvcc(nvcc, architecture) if nvcc else by_nvrtc(load_nvrtc(), architecture)
    Path(target).write_bytes(image)
    print(f"kernels for {architecture} by {nvcc or 'NVRTC'}: {len(image)} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: compile_kernels.py ARCHITECTURE FILE")
    main(*sys.argv[1:])
