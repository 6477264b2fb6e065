# SPDX-License-Identifier: Apache-2.0
"""What the demonstration trains on."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import torch
from spillway.demo import data
from spillway.demo.model import SIZES, Batches


def test_standard_library_begins_with_its_first_source_in_order() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    first = min(
        (path for path in root.rglob("*.py") if "site-packages" not in path.parts and path.stat().st_size),
        key=lambda path: path.relative_to(root).as_posix(),
    )

    assert data.standard_library(64) == first.read_bytes()[:64]


def test_same_text_every_time() -> None:
    assert data.standard_library(100_000) == data.standard_library(100_000)


def test_text_is_cut_at_the_byte_limit() -> None:
    assert len(data.standard_library(12_345)) == 12_345


def test_batches_depend_on_seed_and_step_alone() -> None:
    text = data.standard_library(100_000)
    one, other = (Batches(text, SIZES["small"], seed=7) for _ in range(2))
    one.at(1, "cpu")

    assert torch.equal(one.at(3, "cpu")[0], other.at(3, "cpu")[0])
    assert not torch.equal(one.at(3, "cpu")[0], one.at(4, "cpu")[0])
    assert not torch.equal(one.at(3, "cpu")[0], Batches(text, SIZES["small"], seed=8).at(3, "cpu")[0])


def test_targets_are_the_next_bytes() -> None:
    tokens, targets = Batches(data.standard_library(100_000), SIZES["small"], seed=7).at(1, "cpu")

    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_shortest_allowed_text_gives_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * data.LEAST)

    assert data.problem(path) is None
    assert Batches(data.load(path), SIZES["demo"], seed=7).at(1, "cpu")[0].shape == (16, 256)


def test_text_one_byte_too_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * (data.LEAST - 1))

    assert re.search(rf"{path}: .*{data.LEAST} bytes, not {data.LEAST - 1}", data.problem(path) or "")
