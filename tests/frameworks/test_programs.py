# SPDX-License-Identifier: Apache-2.0
"""LibTorch programs without Python on the emulated GPU."""

import os
import pathlib
import subprocess
import sys
from functools import cache

import pytest
from spillway import _load

(BUILT,) = _load.built_for()
PROGRAMS = pathlib.Path(os.environ["TEST_PROGRAMS"])
TRAIN = PROGRAMS / "spillway_test_train"
LAUNCHER = (sys.executable, "-m", "spillway", "emulate")
BARE = {"LD_PRELOAD": "", "SPILLWAY_EMULATE": ""}


def run(*command, **environment):
    return subprocess.run(
        list(map(str, command)),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@cache
def on_the_cpu():
    return run(TRAIN, "cpu").stdout


@cache
def plain():
    return run(*LAUNCHER, "--", TRAIN, "cuda", "copies", **BARE)


def test_a_program_trains_to_the_bits_of_a_cpu_run():
    there = run(TRAIN, "cuda", SPILLWAY_EMULATE_SCHEDULE="late")
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == on_the_cpu()
    assert len(there.stdout.split()) == 10 + 8 * 32 + 32 + 32 * 4 + 4


def test_the_launcher_runs_a_program():
    there = run(*LAUNCHER, "--", TRAIN, "cuda", **BARE)
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == on_the_cpu()


@pytest.mark.parametrize("allocator", ["spillway", "torch"])
def test_a_program_that_is_not_changed_for_it_moves_what_it_saves(allocator):
    options = ("--ratio", "1", "--schedule", "late", "--allocator", allocator)
    ours = run(*LAUNCHER, *options, "--", TRAIN, "cuda", "copies", **BARE)
    assert (ours.returncode, ours.stdout) == (0, plain().stdout), ours.stderr
    # Of each of ten steps the two 16 x 32 tensors around gelu; the 16 x 8 and 16 x 4 ones are too small.
    assert int(ours.stderr) - int(plain().stderr) == 10 * 2 * 16 * 32 * 4


@pytest.mark.parametrize(
    ("ratios", "storages"),
    [
        (("gelu=1",), 1),  # saves what it is given; the layer after it saves what it gives
        (("gelu=1", "nar*=1"), 2),
        (("gelu=0",), 1),  # beside --ratio 1, which has the rest
        (("other=1",), 0),
        (("model.*=1", "gelu=0"), 2),  # the first that fits counts
        (("model.????=0", "model.*=1"), 1),  # tags of their own, though they differ in wildcards alone
    ],
)
def test_a_program_s_nvtx_ranges_have_shares_of_their_own(ratios, storages):
    options = [word for ratio in ratios for word in ("--tag-ratio", ratio)]
    if ratios == ("gelu=0",):
        options += ["--ratio", "1"]
    ours = run(*LAUNCHER, *options, "--", TRAIN, "cuda", "copies", **BARE)
    assert (ours.returncode, ours.stdout) == (0, plain().stdout), ours.stderr
    assert int(ours.stderr) - int(plain().stderr) == 10 * storages * 16 * 32 * 4


def test_a_profiler_that_has_nvtx_keeps_it():
    options = ("--tag-ratio", "gelu=1")
    ours = run(
        *LAUNCHER, *options, "--", TRAIN, "cuda", "copies", NVTX_INJECTION64_PATH="/profiler.so", **BARE
    )
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, plain().stdout, plain().stderr)


def test_a_program_s_bad_setting_is_one_line_and_pytorch_s_error():
    ours = run(TRAIN, "cuda", SPILLWAY_OFFLOAD_RATIO="2")
    assert ours.returncode != 0
    assert ours.stderr.splitlines()[0].startswith("spillway: ")
    assert "SPILLWAY_OFFLOAD_RATIO" in ours.stderr.splitlines()[0]
    assert ours.stdout == ""


def test_a_device_that_is_not_there_is_pytorch_s_own_error():
    done = run(TRAIN, "cuda:1")
    assert done.returncode != 0
    assert "invalid device ordinal" in done.stderr


ASK_FOR_DEVICES = """
import ctypes, sys
for name in ("torch_cpu", "torch_cuda"):
    ctypes.CDLL(f"{sys.argv[1]}/lib{name}.so", mode=ctypes.RTLD_GLOBAL)
process, count = ctypes.CDLL(None), ctypes.c_int()
results = [process.cudaGetDeviceCount(ctypes.byref(count)) for _ in range(2)]
print(results, "emulator_operators" in open("/proc/self/maps").read())
"""


def test_another_version_of_torch_is_reported_both_versions_once_and_left_alone():
    done = run(sys.executable, "-c", ASK_FOR_DEVICES, PROGRAMS / "other_torch")
    assert done.stdout == "[802, 802] False\n"  # cudaErrorSystemNotReady
    assert done.stderr.startswith(
        f"spillway-emulator: the emulated operators are built for torch {BUILT}, "
        "but this process has torch 2.99.1: "
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("unsupported", ["error", "warn"])
def test_a_job_in_cpp_with_another_torch_is_an_error_or_one_warning(unsupported):
    settings = {"SPILLWAY_OFFLOAD_RATIO": "0.5", "SPILLWAY_UNSUPPORTED": unsupported}
    ask = PROGRAMS / "spillway_test_ask_for_devices"
    done = run(ask, PROGRAMS / "other_torch" / "libtorch_cpu.so", **settings)
    assert done.stderr.startswith(
        f"spillway: this build of spillway is for torch {BUILT}, but this program has torch 2.99: "
        "torch 2.11 to 2.15 are supported"
    )
    assert done.stderr.count("\n") == 1
    assert done.stdout == {"error": "802 0\n", "warn": "0 1\n"}[unsupported]
