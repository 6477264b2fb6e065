# SPDX-License-Identifier: Apache-2.0
"""The examples that the README leads to do what they document."""

import importlib.util
import pathlib
import re
import sys

import pytest
from launched import spillway

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
RIGHT = "[0.0, 2.0, 4.0, 6.0]\n"


def emulated(*options, verb="emulate", example="find_a_race.py", arguments=(), **environment):
    return spillway(verb, *options, "--", sys.executable, EXAMPLES / example, *arguments, **environment)


def test_the_race_is_named_with_both_places_though_the_numbers_are_right():
    done = emulated("--check")
    assert done.stdout == RIGHT
    assert (
        'spillway-check: unordered read after write: "aten::mul.Tensor" on the default stream' in done.stderr
    )
    assert "find_a_race.py:19" in done.stderr
    assert "find_a_race.py:23" in done.stderr


def test_the_race_gives_wrong_numbers_under_the_late_schedule():
    assert emulated("--schedule", "late").stdout != RIGHT


def test_the_fixed_program_is_right_and_silent():
    done = emulated("--schedule", "late", "--check", arguments=["--fixed"])
    assert (done.stdout, done.returncode) == (RIGHT, 0)
    assert "unordered" not in done.stderr


def test_a_model_in_parts_has_the_losses_of_the_plain_one_and_a_fraction_of_its_peak():
    done = emulated("--check", example="sequential_in_parts.py", CUBLAS_WORKSPACE_CONFIG=":16:8")
    said = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert said["losses in parts"].split() == said["losses plain"].split()
    ours, plain = (int(part.split()[0]) for part in said["peak in parts"].replace("plain: ", "").split(","))
    assert 0 < ours * 3 < plain
    weights = int(said["weights"].split()[0])
    fetched, copied = re.findall(r"(\d+) KiB", said["per step"])
    # Weights for each pass; weights, gradients and states for the step, which makes the states at first.
    assert int(fetched) == 5 * weights, said["per step"]
    # Gradients, weights and states, and once the weights that were loaded.
    assert int(copied) == 4 * weights + weights // 3, said["per step"]
    assert "unordered" not in done.stderr


def test_micro_batches_wait_on_the_host():
    done = emulated("--check", example="microbatches.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'units': 108" in done.stdout
    assert "unordered" not in done.stderr


def test_a_trainer_moves_its_activations():
    done = emulated("--check", example="trainer_offload.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a loop: 1245184 bytes offloaded" in done.stdout
    moved = dict(re.findall(r"^(.+): (\d+) bytes offloaded$", done.stdout, re.MULTILINE))
    for trainer, packages in (
        ("transformers.Trainer", ("transformers", "accelerate")),
        ("trl.SFTTrainer", ("trl", "datasets")),
    ):
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:  # a machine that was set up without a network
            assert f"skipped, because these packages are missing: {', '.join(missing)}" in done.stdout
        else:
            assert int(moved[trainer]) > 0, done.stdout
    assert "unordered" not in done.stderr


def peak_of_a_dry_trainer(*arguments):
    done = emulated("h200", verb="dry-run", example="dry_run_trainer.py", arguments=arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(r"^1\.24 billion parameters, peak ([\d.]+) GiB$", done.stdout, re.MULTILINE)[1])


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "accelerate")),
    reason="transformers or accelerate is not installed",
)
def test_an_unchanged_trainer_of_a_billion_parameters_runs_dry():
    plain, checkpointed = (peak_of_a_dry_trainer(*flags) for flags in ((), ("--checkpoint",)))
    assert 4 * 2 * 1.24e9 / 2**30 < checkpointed < plain < 141  # parameters, gradients and two states


def test_a_gpt_moves_more_and_needs_less_with_each_ratio_and_computes_the_same():
    done = emulated(example="gpt_ratio.py")
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [float(row[0]) for row in rows] == [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1], done.stderr
    moved = [float(row[1]) for row in rows]
    peaks = [float(row[2]) for row in rows]
    assert moved == sorted(moved) and moved[0] == 0 < moved[1] and moved[3] < moved[-1]
    assert peaks == sorted(peaks, reverse=True) and peaks[0] > peaks[-1]
    assert len({row[3] for row in rows}) == 1
