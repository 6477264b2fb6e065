# SPDX-License-Identifier: Apache-2.0
"""What the settings of a job do in a script that does not use Spillway, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import SCRIPTS, Done, done, environment, plain, under_spillway
from spillway import _load, launch

(GLUE,) = _load.built_for().values()
SCRIPT = str(SCRIPTS / "compiled.py")


def directly(folder: Path, *command: str, **changes: str) -> Done:
    """By LD_PRELOAD alone."""
    libraries = {"LD_PRELOAD": f"{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_EMULATE": "1"}
    return done(list(command), environment(folder) | libraries | changes)


def test_a_share_that_modules_have_by_name(tmp_path: Path) -> None:
    expected = plain("compiled")
    mlp = under_spillway("compiled", tmp_path, "--tag-ratio", "mlp=1")
    outside = under_spillway("compiled", tmp_path, "--tag-ratio", "mlp=0", "--ratio", "1")
    everything = under_spillway("compiled", tmp_path, "--ratio", "1")
    assert (mlp.status, mlp.stdout, mlp.stderr) == (0, expected.stdout, expected.stderr)
    assert (outside.status, outside.stdout, outside.stderr) == (0, expected.stdout, expected.stderr)
    assert 0 < mlp.moved[-1] < everything.moved[-1]
    assert 0 < outside.moved[-1] < everything.moved[-1]
    assert mlp.moved[-1] + outside.moved[-1] == everything.moved[-1]


def test_what_is_cheap_is_recomputed(tmp_path: Path) -> None:
    expected = plain("transformers_trainer")
    kept = under_spillway("transformers_trainer", tmp_path, "--ratio", "0")
    recomputed = under_spillway("transformers_trainer", tmp_path, "--recompute")
    both = under_spillway("transformers_trainer", tmp_path, "--recompute", "--ratio", "1")
    off = under_spillway("transformers_trainer", tmp_path, SPILLWAY_RECOMPUTE="0")
    for ours in (recomputed, both, off):
        assert (ours.status, ours.stdout, ours.stderr) == (0, expected.stdout, expected.stderr)
    assert 0 < recomputed.offloadable[-1] < kept.offloadable[-1]
    assert both.moved[-1] == both.offloadable[-1] == recomputed.offloadable[-1]
    assert off.offloadable == expected.offloadable


def test_what_is_recorded_says_nothing_to_the_script_s_reader(tmp_path: Path) -> None:
    expected = plain("compiled")
    ours = under_spillway("compiled", tmp_path, "--ratio", "0.5", "--report", str(tmp_path / "out"))
    assert (ours.status, ours.stdout, ours.stderr) == (0, expected.stdout, expected.stderr)
    assert [log.suffix for log in (tmp_path / "out").iterdir()] == [".spillway"]


UNFITTED = "spillway: --tag-ratio=nosuch, mlps.*: fitted no module and no NVTX range. Check the names.\n"


def test_a_pattern_that_fits_nothing_is_reported_at_the_end(tmp_path: Path) -> None:
    # "ml?" fits, though another one counts before it.
    settings = {"SPILLWAY_TAG_RATIO": "nosuch=1,mlp=1,ml?=1,mlps.*=0"}
    ours = directly(tmp_path, sys.executable, SCRIPT, **settings)
    assert (ours.status, ours.stderr) == (0, UNFITTED)
    assert ours.stdout == plain("compiled").stdout


def test_of_several_ranks_the_first_reports_patterns_without_a_match(tmp_path: Path) -> None:
    ours = under_spillway("ddp", tmp_path, "--tag-ratio", "nosuch=1")
    assert ours.status == 0
    said = [line for line in ours.stderr.splitlines() if line.startswith("spillway: ")]
    assert len(said) == 1 and said[0].startswith("spillway: --tag-ratio=nosuch: ") and "rank 0" in said[0]


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
def test_a_process_without_modules_reports_nothing(code: str, tmp_path: Path) -> None:
    ours = directly(tmp_path, sys.executable, "-c", code, SPILLWAY_TAG_RATIO="nosuch=1")
    assert (ours.status, ours.stderr) == (0, "")


def test_a_share_that_nvtx_ranges_have_by_name(tmp_path: Path) -> None:
    script = tmp_path / "ranges.py"
    source = (SCRIPTS / "plain_loop.py").read_text()
    call = "loss = nn.functional.cross_entropy(model(images), labels)"
    assert call in source
    ranged = f"torch.cuda.nvtx.range_push('forward')\n    {call}\n    torch.cuda.nvtx.range_pop()"
    script.write_text(source.replace(call, ranged))
    settings = {"SPILLWAY_TAG_RATIO": "forw*=1"}
    ours = directly(tmp_path, sys.executable, str(script), **settings)
    expected = plain("plain_loop")
    assert (ours.status, ours.stdout) == (0, expected.stdout), ours.stderr
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


def test_a_budget_is_kept(tmp_path: Path) -> None:
    def run(**settings: str) -> tuple[list[int], list[str], int]:
        ours = directly(tmp_path, sys.executable, "-c", DEEP, **settings)
        assert ours.status == 0, ours.stderr
        lines = [line.split() for line in ours.stdout.splitlines()]
        return [int(line[0]) for line in lines], [line[1] for line in lines], ours.moved[-1]

    plain, losses, _ = run(SPILLWAY_ALLOCATOR="spillway")
    budget = plain[-1] - 8 * 2**20
    peaks, same, moved = run(SPILLWAY_BUDGET=str(budget), SPILLWAY_RECOMPUTE="0")
    assert same == losses
    assert max(peaks[1:]) <= budget < plain[-1], (peaks, plain)
    assert moved > 0


def test_a_time_limit_uses_less_memory(tmp_path: Path) -> None:
    def run(**settings: str) -> tuple[int, list[str]]:
        ours = directly(tmp_path, sys.executable, "-c", DEEP, **settings)
        assert ours.status == 0, ours.stderr
        lines = [line.split() for line in ours.stdout.splitlines()]
        return int(lines[-1][0]), [line[1] for line in lines]

    plain, losses = run(SPILLWAY_ALLOCATOR="spillway")
    peak, same = run(SPILLWAY_TIME_LIMIT="100")
    assert same == losses and peak < plain


def test_a_next_run_plans_its_first_step_by_a_file(tmp_path: Path) -> None:
    def peaks(**settings: str) -> list[int]:
        ours = directly(tmp_path, sys.executable, "-c", DEEP, **settings)
        assert ours.status == 0, ours.stderr
        return [int(line.split()[0]) for line in ours.stdout.splitlines()]

    plain = peaks(SPILLWAY_ALLOCATOR="spillway")
    settings = {"SPILLWAY_BUDGET": str(plain[-1] - 8 * 2**20), "SPILLWAY_PLANS": str(tmp_path / "plans")}
    first, second = peaks(**settings), peaks(**settings)
    # Workspaces are not live yet when it begins: it leaves room for them.
    assert first[0] < second[0] <= first[-1] == second[-1] < plain[-1], (first, second, plain)


def test_a_rank_plans_on_its_own_gpu_and_does_not_use_the_first_one(tmp_path: Path) -> None:
    code = "import torch\ntorch.cuda.set_device(1)\n" + DEEP
    code += "import spillway\nprint(list(spillway.stats()['devices']))"
    settings = {"RANK": "1", "LOCAL_RANK": "1", "SPILLWAY_EMULATE_DEVICES": "2"}
    settings |= {"SPILLWAY_BUDGET": "1GiB", "SPILLWAY_PLANS": str(tmp_path / "plans")}
    for _ in range(2):
        ours = directly(tmp_path, sys.executable, "-c", code, **settings)
        assert (ours.status, ours.stdout.splitlines()[-1]) == (0, "[1]"), ours
        assert (tmp_path / "plans.1").exists()


def test_without_recomputing_a_budget_only_moves(tmp_path: Path) -> None:
    code = DEEP + "import spillway\nprint(spillway.stats()['tags']['job']['last']['left_to_recompute_bytes'])"

    def recomputed(**settings: str) -> int:
        return int(directly(tmp_path, sys.executable, "-c", code, **settings).stdout.splitlines()[-1])

    assert recomputed(SPILLWAY_TIME_LIMIT="100") > 0
    assert recomputed(SPILLWAY_TIME_LIMIT="100", SPILLWAY_RECOMPUTE="0") == 0


def test_a_budget_that_cannot_be_met_says_what_could(tmp_path: Path) -> None:
    ours = directly(tmp_path, sys.executable, SCRIPT, SPILLWAY_BUDGET="1MiB")
    assert ours.status == 1
    last = ours.stderr.splitlines()[-1]
    assert "BudgetError: budget 1.0 MiB " in last and "--budget " in last


@pytest.mark.parametrize("allocator", ["spillway", "torch"])
def test_the_preload_library_alone_is_enough(allocator: str, tmp_path: Path) -> None:
    settings = {"SPILLWAY_OFFLOAD_RATIO": "0.5", "SPILLWAY_ALLOCATOR": allocator}
    code = f"import runpy, torch; runpy.run_path({SCRIPT!r}); print(torch.cuda.get_allocator_backend())"
    ours = directly(tmp_path, sys.executable, "-c", code, **settings)
    assert ours.status == 0, ours.stderr
    assert ours.stdout.splitlines()[-1] == {"spillway": "spillway", "torch": "native"}[allocator]
    assert ours.moved[-1] > 0


def test_disabled_nothing_happens(tmp_path: Path) -> None:
    ours = directly(tmp_path, sys.executable, SCRIPT, SPILLWAY_OFFLOAD_RATIO="0.5", SPILLWAY_DISABLE="1")
    expected = plain("compiled")
    assert (ours.status, ours.stdout, ours.stderr) == (0, expected.stdout, expected.stderr)
    assert max(ours.moved) == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SPILLWAY_BUDGET", "20GB", "SPILLWAY_BUDGET=20GB: "),
        ("SPILLWAY_BUDGET", "120%", "SPILLWAY_BUDGET=120%: "),
        ("SPILLWAY_TIME_LIMIT", "0.9", "SPILLWAY_TIME_LIMIT=0.9: "),
        ("SPILLWAY_PLANS", "plans", "SPILLWAY_PLANS=plans: needs SPILLWAY_BUDGET or SPILLWAY_TIME_LIMIT"),
        ("SPILLWAY_OFFLOAD_RATIO", "1.5", "SPILLWAY_OFFLOAD_RATIO=1.5: "),
        ("SPILLWAY_TAG_RATIO", "mlp", "SPILLWAY_TAG_RATIO=mlp: "),
        ("SPILLWAY_TAG_RATIO", "mlp=2", "SPILLWAY_TAG_RATIO=mlp=2: "),
        ("SPILLWAY_ALLOCATOR", "other", "SPILLWAY_ALLOCATOR=other: "),
    ],
)
def test_a_setting_that_cannot_be_used_ends_the_job_with_one_line(
    name: str, value: str, said: str, tmp_path: Path
) -> None:
    ours = directly(tmp_path, sys.executable, SCRIPT, **{name: value})
    assert (ours.status, ours.stdout) == (2, "")
    assert ours.stderr.startswith(f"spillway: {said}")
    assert ours.stderr.count("\n") == 1


def test_an_isolated_interpreter_that_has_the_package(tmp_path: Path) -> None:
    """-I ignores PYTHONPATH: what is installed is found."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(
        subprocess.run([python, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
    )
    copy_package(site)
    shutil.copytree(SCRIPTS.parent / "probe", site, dirs_exist_ok=True)
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "torch.pth").write_text("\n".join(sorted(others)))
    command = [str(python), "-m", "spillway", "emulate", "--ratio", "0.5", "--"]
    ours = done([*command, str(python), "-I", SCRIPT], environment(tmp_path) | {"PYTHONPATH": ""})
    assert ours.status == 0, ours.stderr
    assert ours.moved[-1] > 0


def copy_package(folder: Path) -> Path:
    package = folder / "spillway"
    shutil.copytree(launch.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for info in launch.PACKAGE.parent.glob("*.dist-info"):
        shutil.copytree(info, folder / info.name)
    return package


def test_a_path_with_spaces(tmp_path: Path) -> None:
    package = copy_package(tmp_path / "with a space")
    probe = os.pathsep.join([str(package.parent), str(SCRIPTS.parent / "probe")])
    script = tmp_path / "with a space" / "my script.py"
    shutil.copy(SCRIPT, script)
    command = [sys.executable, "-m", "spillway", "emulate", "--ratio", "0.5", "--"]
    ours = done([*command, sys.executable, str(script)], environment(tmp_path) | {"PYTHONPATH": probe})
    assert ours.status == 0, ours.stderr
    assert ours.moved[-1] > 0


@pytest.mark.parametrize("unsupported", ["error", "warn"])
def test_another_torch_is_an_error_or_one_warning(unsupported: str, tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    (layer,) = package.glob("_glue_t*.so")
    layer.rename(package / layer.name.replace(GLUE, "_glue_t999"))
    code = "import torch; print(torch.ones(2).sum().item())"
    settings = {
        "PYTHONPATH": str(tmp_path),
        "SPILLWAY_OFFLOAD_RATIO": "1",
        "SPILLWAY_UNSUPPORTED": unsupported,
    }
    ours = done([sys.executable, "-c", code], environment(tmp_path) | settings)
    assert ours.stderr.startswith(f"spillway: torch {version('torch')}") and "torch 9.99" in ours.stderr
    assert "torch 2.11 to 2.15" in ours.stderr
    assert ours.stderr.count("\n") == 1
    assert (ours.status, ours.stdout) == ((2, "") if unsupported == "error" else (0, "2.0\n"))


def test_another_python_is_reported_and_left_alone(tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    (layer,) = package.glob("_glue_t*.so")
    layer.rename(package / f"{GLUE}.cpython-399-x86_64-linux-gnu.so")
    settings = {"PYTHONPATH": str(tmp_path), "SPILLWAY_OFFLOAD_RATIO": "1"}
    ours = done([sys.executable, "-c", "import torch; print(1)"], environment(tmp_path) | settings)
    assert (ours.status, ours.stdout) == (0, "1\n")
    assert ours.stderr.startswith(f"spillway: {sys.executable}: ") and " cpython-3" in ours.stderr
    assert ours.stderr.count("\n") == 1


def two_preloaded(folder: Path, more: bytes) -> tuple[Done, Path]:
    """A job with a copy of the preload library, and this one behind it."""
    other = folder / launch.SHIM.name
    other.write_bytes(launch.SHIM.read_bytes() + more)
    libraries = {"LD_PRELOAD": f"{other}:{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_OFFLOAD_RATIO": "0.5"}
    return directly(folder, sys.executable, SCRIPT, **libraries), other


def test_two_copies_of_one_version_are_reported_and_the_job_goes_on(tmp_path: Path) -> None:
    ours, other = two_preloaded(tmp_path, b"")
    assert ours.stderr == (
        f"spillway: two copies of its preload library are in this process, {other} and {launch.SHIM}: "
        "take one out of LD_PRELOAD\n"
    )
    assert (ours.status, ours.stdout) == (0, plain("compiled").stdout)
    assert ours.moved[-1] > 0


def test_two_versions_at_once_end_the_job_with_one_line(tmp_path: Path) -> None:
    ours, other = two_preloaded(tmp_path, b"newer")
    assert (ours.status, ours.stdout, ours.moved) == (2, "", [])
    assert ours.stderr.startswith(f"spillway: {other}: ") and ours.stderr.count("\n") == 1
    assert str(launch.PACKAGE) in ours.stderr


def test_a_job_that_opens_regions_itself_keeps_them(tmp_path: Path) -> None:
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
    ours = directly(tmp_path, sys.executable, "-c", code, SPILLWAY_OFFLOAD_RATIO="1")
    assert ours.status == 0, ours.stderr
    moved = json.loads(ours.stdout)
    assert moved["mine"] == 0
    assert moved["job"] > 0


def test_starting_costs_a_process_without_torch_nothing() -> None:
    command = [sys.executable, "-c", "import sys; print('spillway' in sys.modules)"]
    env = os.environ | {"LD_PRELOAD": str(launch.SHIM), "SPILLWAY_OFFLOAD_RATIO": "0.5"}
    assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout == "False\n"
