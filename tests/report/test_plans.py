# SPDX-License-Identifier: Apache-2.0
"""The cost of budgets, as `spillway explain` and the page of a report show it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from conftest import run_job
from launched import spillway
from spillway.report.log import ReportError, RunLog
from spillway.report.plans import plans_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans") / "out"
    result = run_job(folder, "--budget", "50%", "--keep-model-state")
    assert result.returncode == 0, result.stderr
    return folder


def test_the_plan_and_its_curve_are_reported(folder: Path) -> None:
    result = spillway("explain", folder)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Plan of 'job' on GPU 0: ")
    (plan,) = json.loads(spillway("explain", folder, "--json").stdout)
    # Steps under another load than the recorded ones may be faster than the bound by recorded times.
    by = "by the recorded times " if plan["optimality"] > 1 else ""
    assert any(
        line.startswith("optimality ") and f"{by}no plan could take less than" in line for line in lines
    ), result.stdout
    budgets = [line for line in lines if line.rstrip().endswith(("computing", "again", "host", "GPU"))]
    assert len(budgets) >= 13 and sum("*" in line for line in budgets) == 1, result.stdout


def test_programs_can_read_it(folder: Path) -> None:
    (plan,) = json.loads(spillway("explain", folder, "--json").stdout)
    assert plan["tag"] == "job" and plan["chosen"]["peak"] <= plan["chosen"]["budget"]
    curve = plan["curve"]
    assert [point["budget"] for point in curve] == sorted(point["budget"] for point in curve)
    assert curve[-1]["kept"] == sum(plan["chosen"][each] for each in ("kept", "offloaded", "recomputed"))
    assert all(point["bound"] <= point["seconds"] * (1 + 1e-9) for point in curve)
    assert plan["optimality"] > 0


def test_the_page_and_the_terminal_have_it_too(folder: Path) -> None:
    result = spillway("report", folder)
    assert result.returncode == 0, result.stderr
    assert "optimality" in " ".join(result.stdout.split())
    page = (folder / "report.html").read_text()
    assert "What a budget costs, region job, GPU 0" in page and "(this run)" in page
    assert page.count('<polyline class="planned"') == 1


def test_the_file_is_the_users_alone(folder: Path) -> None:
    (file,) = folder.glob("*.plans.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_file_is_one_line(folder: Path, tmp_path: Path) -> None:
    for name in folder.iterdir():
        if name.suffix in (".spillway", ".json"):
            (tmp_path / name.name).write_bytes(name.read_bytes())
    (file,) = tmp_path.glob("*.plans.json")
    file.write_text('{"spillway_explanations": 2, "plans": [{}]}')
    for command in ("explain", "report"):
        result = spillway(command, tmp_path)
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
        assert f"{file}: is damaged" in result.stderr


def test_a_job_without_a_budget_has_none(tmp_path: Path) -> None:
    assert run_job(tmp_path / "out", "--ratio", "0.5").returncode == 0
    result = spillway("explain", tmp_path / "out")
    assert result.returncode == 2 and "contains no plan" in result.stderr
    assert result.stderr.count("\n") == 1


def test_plans_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "7-1.plans.json").write_text('{"spillway_explanations": 1, "plans": []}')
    with pytest.raises(ReportError, match="has format 1, but this Spillway reads format 2"):
        plans_of(RunLog(tmp_path / "7-1.spillway", {}))
