# SPDX-License-Identifier: Apache-2.0
"""The registry of figures and its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Script
from spillway import launch

import bench.figures  # noqa: F401 (importing registers)
from bench.figures import registry
from bench.figures.__main__ import measure
from bench.figures.session import Session
from bench.pages import PAGES
from bench.results import RunFailed

ROOT = Path(__file__).parents[2]


class Device:
    device = "emulated"


class Silent:
    def print(self, *_words: object, **_style: object) -> None:
        pass


def status(value: float, bound: str, needs: str = "cpu") -> str:
    figure = registry.Figure("name", "unit", registry.Bound(bound), needs, "claim", lambda _session: value)
    return measure(figure, Device(), Silent())["status"]


def test_name_registers_once() -> None:
    name = next(iter(registry.FIGURES))

    with pytest.raises(ValueError, match=f"{name} is registered twice"):
        registry.figure(name, "unit", "= 0", "cpu")(lambda _session: 0.0)


def test_figure_without_a_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="has no claim"):
        registry.figure("test_without_claim", "unit", "= 0", "cpu")(lambda _session: 0.0)


def test_bound_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="bound"):
        registry.Bound("about 3")


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [(1.1, "<= 1.1", "ok"), (1.11, "<= 1.1", "short"), (0.9, ">= 0.9", "ok"), (1, "= 0", "short")],
)
def test_status_follows_the_bound(value: float, bound: str, expected: str) -> None:
    assert status(value, bound) == expected


def test_figure_of_a_gpu_is_not_measured_without_one() -> None:
    assert status(0, "= 0", needs="gpu") == "needs-gpu"


def test_figure_whose_program_fails_is_short() -> None:
    def fail(_session: object) -> float:
        raise RunFailed("program ended with status 1")

    figure = registry.Figure("name", "unit", registry.Bound("= 0"), "cpu", "claim", fail)
    entry = measure(figure, Device(), Silent())

    assert (entry["value"], entry["status"]) == (None, "short")


def test_what_a_gpu_s_step_calls_is_counted_under_the_preload_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("cuda", tmp_path)
    printed = '{"calls": 1000, "kernels": 0, "nanoseconds": 4000000}'
    seen: dict[str, str] = {}

    def run(_command: list[str], environment: dict[str, str]) -> str:
        seen.update(environment)
        return printed

    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr("bench.figures.session.output_of", run)
    monkeypatch.setattr(
        session, "program", lambda _name: {"recording": 7.0, "recording_copy": 9.0, "writing": 1.0}
    )

    assert registry.FIGURES["preload_share_of_step"].measure(session) == 1000 * 10 / 4_000_000
    assert seen["LD_PRELOAD"] == str(launch.SHIM)
    assert "SPILLWAY_EMULATE" not in seen


def test_unknown_name_is_refused_before_set_up(script: Script) -> None:
    done = script.run("figures", "no_such_figure")

    assert done.returncode == 2
    assert "no_such_figure: unknown figure; known are " in done.stderr
    assert not script.set_up_began


def test_every_registered_name_is_known_to_the_script(script: Script) -> None:
    done = script.run("figures", *registry.FIGURES)

    assert done.returncode == 9
    assert script.set_up_began


def test_every_module_of_figures_is_registered() -> None:
    written = {
        path.stem for path in (ROOT / "bench" / "figures").glob("*.py") if "\n@figure(" in path.read_text()
    }

    assert written == {figure.measure.__module__.rpartition(".")[2] for figure in registry.FIGURES.values()}


def test_unknown_name_is_refused_by_the_module_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.figures", "--programs", str(tmp_path), "no_such_figure"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("figures: no_such_figure: unknown figure; known are ")


def test_the_page_states_where_a_bound_is_missed() -> None:
    page = PAGES["figures"]
    result = page.newest()
    short = [each for each in result["figures"] if each["status"] == "short" and each["value"] is not None]
    one = {**result, "figures": [{**result["figures"][0], "value": 2.0, "bound": "<= 1", "status": "short"}]}

    assert "\n".join(page.lines(one)).count("| <= 1 (missed) |") == 1
    assert "\n".join(page.lines(result)).count("(missed)") == len(short)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_newest_result(name: str) -> None:
    page = PAGES[name]

    assert page.quote.found() == page.quote.marked(page.lines(page.newest()))
