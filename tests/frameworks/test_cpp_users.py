# SPDX-License-Identifier: Apache-2.0
"""Programs in C++ that see nothing but an installed Spillway and LibTorch."""

import os
import pathlib
import subprocess

import spillway
import torch

PACKAGE = pathlib.Path(spillway.__path__[0])
BUILD = PACKAGE.parents[1]
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "cpp"
TORCH = pathlib.Path(torch.__path__[0])


def run(*command, **environment):
    settings = {**os.environ, **environment}
    settings = {name: value for name, value in settings.items() if value is not None}
    done = subprocess.run(list(map(str, command)), env=settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_program_that_finds_the_installed_package_trains_with_the_losses_of_plain_libtorch(tmp_path):
    plain = {"LD_PRELOAD": None, "SPILLWAY_EMULATE": None}
    installed = tmp_path / "spillway"
    # The parts of the package that C++ programs use: the rest may not have been built.
    for folder in ("allocator/abi", "torch_glue"):
        run("cmake", "--install", BUILD / folder, "--prefix", tmp_path, **plain)
    assert not (installed / "include" / "torch_glue").exists()
    run(
        *("cmake", "-S", EXAMPLE, "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE="),
        *(f"-DCMAKE_PREFIX_PATH={installed}", f"-DTORCH_ROOT={TORCH}"),
        **plain,
    )
    run("cmake", "--build", tmp_path / "build", **plain)
    emulator = PACKAGE / "lib" / "libspillway_emulator.so"
    for schedule in ("eager", "late"):
        done = run(
            tmp_path / "build" / "train",
            LD_PRELOAD=str(emulator),
            SPILLWAY_EMULATE="1",
            SPILLWAY_EMULATE_CHECK="1",
            SPILLWAY_EMULATE_SCHEDULE=schedule,
        )
        assert "the same" in done.stdout
        assert "unordered" not in done.stderr
