# SPDX-License-Identifier: Apache-2.0
"""What the settings of a job do in a script that does not use Spillway. Programs are forked from one process
that has imported torch; those of "Entry points" are new processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import SCRIPTS, Done, done, environment
from spillway import _load, launch

(GLUE,) = _load.built_for().values()
Forked = Callable[..., Done]

# Without compilation, which takes seconds.
TWO_PARTS = (
    (SCRIPTS / "compiled.py").read_text().replace("torch.compile(", "(lambda module, backend: module)(")
)


@pytest.fixture(scope="module")
def plain(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """TWO_PARTS without settings."""
    return forked(tmp_path_factory.mktemp("plain"), TWO_PARTS)


def test_a_share_that_modules_have_by_name_and_a_report(forked: Forked, plain: Done, tmp_path: Path) -> None:
    mlp = forked(tmp_path, TWO_PARTS, SPILLWAY_TAG_RATIO="mlp=1")
    outside = forked(tmp_path, TWO_PARTS, SPILLWAY_TAG_RATIO="mlp=0", SPILLWAY_OFFLOAD_RATIO="1")
    recorded = {"SPILLWAY_REPORT": str(tmp_path / "out")}
    everything = forked(tmp_path, TWO_PARTS, SPILLWAY_OFFLOAD_RATIO="1", **recorded)
    for ours in (mlp, outside, everything):
        assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, "")
    assert 0 < mlp.moved[-1] < everything.moved[-1]
    assert 0 < outside.moved[-1] < everything.moved[-1]
    assert mlp.moved[-1] + outside.moved[-1] == everything.moved[-1]
    assert [log.suffix for log in (tmp_path / "out").iterdir()] == [".spillway"]


def test_what_is_cheap_is_recomputed(forked: Forked, plain: Done, tmp_path: Path) -> None:
    kept = forked(tmp_path, TWO_PARTS, SPILLWAY_OFFLOAD_RATIO="0")
    recomputed = forked(tmp_path, TWO_PARTS, SPILLWAY_RECOMPUTE="1")
    both = forked(tmp_path, TWO_PARTS, SPILLWAY_RECOMPUTE="1", SPILLWAY_OFFLOAD_RATIO="1")
    off = forked(tmp_path, TWO_PARTS, SPILLWAY_RECOMPUTE="0")
    for ours in (kept, recomputed, both, off):
        assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, "")
    assert 0 < recomputed.offloadable[-1] < kept.offloadable[-1]
    assert 0 < both.moved[-1] == both.offloadable[-1] < kept.offloadable[-1]
    assert off.offloadable == plain.offloadable


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (
            {"RANK": "0"},
            "spillway: --tag-ratio=nosuch, mlps.*: fitted no module and no NVTX range of rank 0. Check the "
            "names.\n",
        ),
        ({"RANK": "1"}, ""),  # of several ranks the first reports
    ],
)
def test_patterns_that_fit_nothing_are_reported_at_the_end(
    forked: Forked, plain: Done, rank: dict[str, str], said: str, tmp_path: Path
) -> None:
    # "ml?" fits, though another one counts before it.
    ours = forked(tmp_path, TWO_PARTS, SPILLWAY_TAG_RATIO="nosuch=1,mlp=1,ml?=1,mlps.*=0", **rank)
    assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, said)


@pytest.mark.parametrize(
    "code",
    [
        "import torch; torch.ones(2, device='cuda')",  # no module at all
        """
import os, sys, torch
if os.fork() == 0:
    torch.nn.Linear(2, 2)(torch.ones(2, 2))
    sys.exit(0)  # not os._exit(): what is registered for the end runs in the child too
os.wait()
""",
    ],
)
def test_a_process_without_modules_reports_nothing(forked: Forked, code: str, tmp_path: Path) -> None:
    ours = forked(tmp_path, code, SPILLWAY_TAG_RATIO="nosuch=1")
    assert (ours.status, ours.stderr) == (0, "")


def test_a_share_that_nvtx_ranges_have_by_name(forked: Forked, plain: Done, tmp_path: Path) -> None:
    call = "loss = (model(batch) - batch).square().mean()"
    assert call in TWO_PARTS
    ranged = f"torch.cuda.nvtx.range_push('forward')\n    {call}\n    torch.cuda.nvtx.range_pop()"
    ours = forked(tmp_path, TWO_PARTS.replace(call, ranged), SPILLWAY_TAG_RATIO="forw*=1")
    assert (ours.status, ours.stdout) == (0, plain.stdout), ours.stderr
    assert ours.moved[-1] > 0


DEEP = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    torch.cuda.reset_peak_memory_stats()
    loss = model(torch.randn(8192, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(torch.cuda.max_memory_allocated(), loss.item().hex())
"""


def deep(forked: Forked, folder: Path, **settings: str) -> tuple[list[int], list[str], Done]:
    """Peaks and losses of DEEP, by step."""
    ours = forked(folder, DEEP, **settings)
    assert ours.status == 0, ours.stderr
    lines = [line.split() for line in ours.stdout.splitlines()]
    return [int(line[0]) for line in lines], [line[1] for line in lines], ours


@pytest.fixture(scope="module")
def plain_deep(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], list[str]]:
    return deep(forked, tmp_path_factory.mktemp("plain"), SPILLWAY_ALLOCATOR="spillway")[:2]


def test_a_budget_is_kept_and_the_next_run_plans_its_first_step_by_a_file(
    forked: Forked, plain_deep: tuple[list[int], list[str]], tmp_path: Path
) -> None:
    plain, losses = plain_deep
    budget = plain[-1] - 8 * 2**20
    only_moved, same, ours = deep(forked, tmp_path, SPILLWAY_BUDGET=str(budget), SPILLWAY_RECOMPUTE="0")
    assert same == losses and max(only_moved[1:]) <= budget < plain[-1], (only_moved, plain)
    assert ours.moved[-1] > 0
    settings = {"SPILLWAY_BUDGET": str(budget), "SPILLWAY_PLANS": str(tmp_path / "plans")}
    (first, _, _), (second, same, _) = (deep(forked, tmp_path, **settings) for _ in range(2))
    # One step without room is recorded with everything offloaded; a planned one leaves room for workspaces.
    assert same == losses and min(first) < second[0] <= first[-1] == second[-1] < plain[-1], (first, second)


def test_a_time_limit_uses_less_memory_and_recomputes_by_default(
    forked: Forked, plain_deep: tuple[list[int], list[str]], tmp_path: Path
) -> None:
    recomputed = (
        "\nimport spillway\nprint(spillway.stats()['tags']['job']['last']['left_to_recompute_bytes'], '')"
    )
    plain, losses = plain_deep
    for recompute in ("1", "0"):
        ours = forked(tmp_path, DEEP + recomputed, SPILLWAY_TIME_LIMIT="100", SPILLWAY_RECOMPUTE=recompute)
        *steps, last = [line.split() for line in ours.stdout.splitlines()]
        assert [loss for _, loss in steps] == losses and int(steps[-1][0]) < plain[-1]
        assert (int(last[0]) > 0) == (recompute == "1")


def test_a_rank_plans_on_its_own_gpu_and_does_not_use_the_first_one(forked: Forked, tmp_path: Path) -> None:
    code = "import torch\ntorch.cuda.set_device(1)\n" + DEEP
    code += "import spillway\nprint(list(spillway.stats()['devices']))"
    settings = {"RANK": "1", "LOCAL_RANK": "1", "SPILLWAY_EMULATE_DEVICES": "2"}
    settings |= {"SPILLWAY_KEEP_MODEL_STATE": "1"}  # otherwise what fits has no plan
    settings |= {"SPILLWAY_BUDGET": "1GiB", "SPILLWAY_PLANS": str(tmp_path / "plans")}
    for _ in range(2):
        ours = forked(tmp_path, code, **settings)
        assert (ours.status, ours.stdout.splitlines()[-1]) == (0, "[1]"), ours
        assert (tmp_path / "plans.1").exists()


def test_a_budget_that_cannot_be_met_states_what_could(forked: Forked, tmp_path: Path) -> None:
    warned = forked(tmp_path, DEEP, SPILLWAY_BUDGET="1MiB", SPILLWAY_OVER_BUDGET="warn")
    assert warned.status == 0 and "budget 1.0 MiB " in warned.stderr
    ended = forked(tmp_path, DEEP, SPILLWAY_BUDGET="1MiB")
    last = ended.stderr.splitlines()[-1]
    assert ended.status == 1 and "BudgetError: budget 1.0 MiB " in last and "--budget " in last


def test_pytorch_s_allocator_is_kept_on_request(forked: Forked, tmp_path: Path) -> None:
    code = TWO_PARTS + "print(torch.cuda.get_allocator_backend())"
    ours = forked(tmp_path, code, SPILLWAY_OFFLOAD_RATIO="0.5", SPILLWAY_ALLOCATOR="torch")
    assert ours.status == 0 and ours.stdout.endswith("native\n"), ours
    assert ours.moved[-1] > 0


def test_an_invalid_setting_ends_the_job_with_one_line(forked: Forked, tmp_path: Path) -> None:
    ours = forked(tmp_path, TWO_PARTS, SPILLWAY_BUDGET="20GB")
    assert (ours.status, ours.stdout) == (2, "")
    assert ours.stderr.startswith("spillway: SPILLWAY_BUDGET=20GB: expected ")
    assert ours.stderr.count("\n") == 1


def test_disabled_nothing_happens(forked: Forked, plain: Done, tmp_path: Path) -> None:
    ours = forked(tmp_path, TWO_PARTS, SPILLWAY_OFFLOAD_RATIO="0.5", SPILLWAY_DISABLE="1")
    assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, "")
    assert max(ours.moved) == 0


def test_a_job_that_opens_regions_itself_keeps_them(forked: Forked, tmp_path: Path) -> None:
    code = """
import json, torch, spillway
from torch import nn
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
with spillway.CPUOffload(0.0, tag="mine"):
    loss = model(torch.ones(64, 64, device="cuda")).sum()
(loss + model(torch.ones(64, 64, device="cuda")).sum()).backward()
spillway.step()
print(json.dumps({tag: each["last"]["offloaded_bytes"] for tag, each in spillway.stats()["tags"].items()}))
"""
    ours = forked(tmp_path, code, SPILLWAY_OFFLOAD_RATIO="1")
    assert ours.status == 0, ours.stderr
    moved = json.loads(ours.stdout)
    assert moved["mine"] == 0
    assert moved["job"] > 0


def copy_package(folder: Path) -> Path:
    package = folder / "spillway"
    shutil.copytree(launch.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for info in launch.PACKAGE.parent.glob("*.dist-info"):
        shutil.copytree(info, folder / info.name)
    return package


def with_renamed_layer(folder: Path, old: str, new: str) -> dict[str, str]:
    package = copy_package(folder)
    (layer,) = package.glob("_glue_t*.so")
    assert old in layer.name
    layer.rename(package / layer.name.replace(old, new))
    return {"PYTHONPATH": str(folder), "SPILLWAY_OFFLOAD_RATIO": "1"}


@pytest.mark.parametrize("unsupported", ["error", "warn"])
def test_another_torch_is_an_error_or_one_warning(forked: Forked, unsupported: str, tmp_path: Path) -> None:
    settings = with_renamed_layer(tmp_path, GLUE, "_glue_t999")
    code = "import torch; print(torch.ones(2).sum().item())"
    ours = forked(tmp_path, code, **settings, SPILLWAY_UNSUPPORTED=unsupported)
    assert ours.stderr.startswith(f"spillway: torch {version('torch')}") and "torch 9.99" in ours.stderr
    assert "torch 2.11 to 2.15" in ours.stderr
    assert ours.stderr.count("\n") == 1
    assert (ours.status, ours.stdout) == ((2, "") if unsupported == "error" else (0, "2.0\n"))


def test_another_python_is_reported_and_left_alone(forked: Forked, tmp_path: Path) -> None:
    settings = with_renamed_layer(tmp_path, sys.implementation.cache_tag, "cpython-399")
    ours = forked(tmp_path, "import torch; print(1)", **settings)
    assert (ours.status, ours.stdout) == (0, "1\n")
    assert ours.stderr.startswith(f"spillway: {sys.executable}: ") and " cpython-3" in ours.stderr
    assert ours.stderr.count("\n") == 1


# Entry points


def directly(folder: Path, *command: str, **changes: str) -> Done:
    """By LD_PRELOAD alone."""
    libraries = {"LD_PRELOAD": f"{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_EMULATE": "1"}
    return done(list(command), environment(folder) | libraries | changes)


def test_the_preload_library_alone_is_enough(plain: Done, tmp_path: Path) -> None:
    code = TWO_PARTS + "print(torch.cuda.get_allocator_backend())"
    ours = directly(tmp_path, sys.executable, "-c", code, SPILLWAY_OFFLOAD_RATIO="0.5")
    assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout + "spillway\n", "")
    assert ours.moved[-1] > 0


def test_an_isolated_interpreter_that_has_the_package_in_a_path_with_spaces(tmp_path: Path) -> None:
    """-I ignores PYTHONPATH: what is installed is found."""
    venv = tmp_path / "with a space"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    (site,) = venv.glob("lib/python*/site-packages")
    copy_package(site)
    shutil.copytree(SCRIPTS.parent / "probe", site, dirs_exist_ok=True)
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "torch.pth").write_text("\n".join(sorted(others)))
    script = venv / "my script.py"
    script.write_text(TWO_PARTS)
    command = [str(python), "-m", "spillway", "emulate", "--ratio", "0.5", "--"]
    ours = done([*command, str(python), "-I", str(script)], environment(tmp_path) | {"PYTHONPATH": ""})
    assert ours.status == 0, ours.stderr
    assert ours.moved[-1] > 0


def two_preloaded(folder: Path, more: bytes, code: str) -> tuple[Done, Path]:
    """A job with a copy of the preload library, and this one behind it."""
    other = folder / launch.SHIM.name
    other.write_bytes(launch.SHIM.read_bytes() + more)
    libraries = {"LD_PRELOAD": f"{other}:{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_OFFLOAD_RATIO": "0.5"}
    return directly(folder, sys.executable, "-c", code, **libraries), other


def test_two_copies_of_one_version_are_reported_and_the_job_goes_on(plain: Done, tmp_path: Path) -> None:
    ours, other = two_preloaded(tmp_path, b"", TWO_PARTS)
    assert ours.stderr == (
        f"spillway: two copies of its preload library are in this process, {other} and {launch.SHIM}: "
        "take one out of LD_PRELOAD\n"
    )
    assert (ours.status, ours.stdout) == (0, plain.stdout)
    assert ours.moved[-1] > 0


def test_two_versions_at_once_end_the_job_with_one_line(tmp_path: Path) -> None:
    ours, other = two_preloaded(tmp_path, b"newer", "from spillway import _job; _job.start()")
    assert (ours.status, ours.stdout) == (2, "")
    assert ours.stderr.startswith(f"spillway: {other}: ") and ours.stderr.count("\n") == 1
    assert str(launch.PACKAGE) in ours.stderr


def test_starting_costs_a_process_without_torch_nothing() -> None:
    command = [sys.executable, "-c", "import sys; print('spillway' in sys.modules)"]
    env = os.environ | {"LD_PRELOAD": str(launch.SHIM), "SPILLWAY_OFFLOAD_RATIO": "0.5"}
    assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout == "False\n"
