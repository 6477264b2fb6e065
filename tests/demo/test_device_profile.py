# SPDX-License-Identifier: Apache-2.0
"""A profile that is measured: what is fitted, and that measuring the emulated GPU gives its profile back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spillway import profiles
from spillway.bench import programs

from bench.device_profile.document import Shares, toml

ROOT = Path(__file__).parents[2]
MEASURED = {
    "name": "A GPU",
    "torch": "2.11.0",
    "memory": 80 << 30,
    "cuda_context": 1 << 29,
    "capability": "9.0",
    "multiprocessors": 100,
    "half": 6e14,
    "attention": 8e14,
    "attention_backward": 4e14,
    "tf32": 3e14,
    "single": 6e13,
    "double": 3e13,
    "memory_rate": 2e12,
    "h2d": {"rate": 5e10, "latency": 2e-6},
    "d2h": {"rate": 4e10, "latency": 3e-6},
    "duplex": 0.75,
    "pageable": 8e9,
    "kernel": 3e-6,
    "launch": 5e-6,
    "create": 3e-5,
    "map": 0.0,
    "access": 4e-5,
    "unmap": 2e-5,
    "release": 1e-5,
    "create_rate": 3e12,
    "release_rate": 1e18,
}
CALLS = ("create", "map", "access", "unmap", "release", "create_rate", "release_rate")


def rates(profile: profiles.Profile) -> dict[str, float]:
    return {
        name: float(value) for name, _, value in (pair.partition("=") for pair in profile.rates.split(","))
    }


def read(tmp_path: Path, measured: dict, shares: Shares | None = None) -> profiles.Profile:
    path = tmp_path / "measured.toml"
    path.write_text(toml(measured, shares or Shares.of(measured)))
    return profiles.read(str(path))


def test_profile_has_what_was_measured(tmp_path: Path) -> None:
    found = read(tmp_path, MEASURED)

    assert found.name == "A GPU"
    assert (found.memory, found.cuda_context) == (str(80 << 30), str(1 << 29))
    assert (found.link_h2d, found.link_d2h, found.latency) == ("50000000000", "40000000000", "3.00us")
    # Attention reaches most; each product takes 3/4 of its type's rate.
    assert rates(found) == {
        "half": 8e14, "product": 0.75, "attention": 1.0, "attention_backward": 0.5,
        "tf32": 4e14, "single": 8e13, "double": 4e13, "memory": 2e12, "duplex": 0.75,
        "pageable": 8e9, "kernel": 3e-6, "launch": 5e-6,
        "fp8": 1.6e15, "int8": 1.6e15, "peers": 3.2e10, "call": 1e-6, "hop": 1e-6,  # assumed
        **{name: MEASURED[name] for name in CALLS},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "known"),
    [("8.6", "8.6"), ("8.7", "8.6"), ("10.3", "10.0"), ("13.0", "12.0"), ("7.0", "7.5")],
)
def test_unknown_capability_becomes_one_that_is_known(tmp_path: Path, measured: str, known: str) -> None:
    assert read(tmp_path, {**MEASURED, "capability": measured}).capability == known


def predicted(share: float) -> float:
    """A step with 20 ms of products, were they to reach everything, and 10 ms besides."""
    return 10 + 20 / share


@pytest.mark.parametrize("true_share", [0.4, 0.6, 1.0])
def test_step_gives_the_share_of_products_with_which_it_was_measured(true_share: float) -> None:
    shares = Shares(8e14, 0.5, 1.0, 0.5)

    fitted = shares.with_products_of_a_step(predicted(true_share), predicted(0.5), predicted(0.25))

    assert fitted.product == pytest.approx(true_share)
    assert (fitted.rate, fitted.attention, fitted.attention_backward) == (8e14, 1.0, 0.5)


def test_share_above_all_is_more_of_everything() -> None:
    shares = Shares(8e14, 1.0, 0.8, 0.4)

    fitted = shares.with_products_of_a_step(predicted(1.05), predicted(1.0), predicted(0.5))

    assert fitted.product == 1.0
    assert fitted.rate == pytest.approx(8e14 * 1.05)
    assert fitted.rate * fitted.attention == pytest.approx(8e14 * 0.8)
    assert fitted.rate * fitted.attention_backward == pytest.approx(8e14 * 0.4)


@pytest.mark.parametrize(
    ("step", "here", "at_half"),
    [
        (15.0, 10.0, 11.0),  # products are a tenth of it
        (9.0, 50.0, 90.0),  # faster than what is no product
        (500.0, 50.0, 90.0),  # a share of less than a tenth
    ],
)
def test_step_that_states_nothing_about_products_changes_nothing(
    step: float, here: float, at_half: float
) -> None:
    shares = Shares(8e14, 0.5, 1.0, 0.5)

    assert shares.with_products_of_a_step(step, here, at_half) == shares


@pytest.mark.skipif(
    not (programs.FOLDER / "copy_bench").exists(), reason="the micro-benchmarks are not built"
)
@pytest.mark.parametrize("name", ["h100", "l4"])
def test_measuring_the_emulated_gpu_gives_its_profile_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "found.toml"
    command = [sys.executable, "-m", "bench.device_profile", str(path), "--dry-run", name]

    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A plain step took ")
    found, there = profiles.read(str(path)), profiles.read(name)
    assert (found.capability, found.multiprocessors) == (there.capability, there.multiprocessors)
    assert found.cuda_context == str(1 << 29)  # "0.5GiB"
    assert float(found.link_h2d) == pytest.approx(float(there.link_h2d), rel=1e-3)
    assert float(found.link_d2h) == pytest.approx(float(there.link_d2h), rel=1e-3)
    left, right = rates(found), rates(there)
    assert left["memory"] == pytest.approx(right["memory"], rel=1e-3)
    for name in ("pageable", "kernel", "launch", *CALLS):
        assert left[name] == pytest.approx(right[name], rel=0.02), name
    assert left["duplex"] == pytest.approx(
        right["duplex"], rel=0.05
    )  # of the first copy there is none beside
    for kind in ("product", "attention", "attention_backward"):
        assert left["half"] * left[kind] == pytest.approx(right["half"] * right[kind], rel=0.01), kind
    for kind in ("tf32", "single", "double"):
        assert left[kind] * left["product"] == pytest.approx(right[kind] * right["product"], rel=0.02), kind


def test_file_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.device_profile", str(tmp_path / "found.json")]

    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 2
    assert done.stderr == f"device_profile: {tmp_path}/found.json: expected a name that ends in .toml\n"
