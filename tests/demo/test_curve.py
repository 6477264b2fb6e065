# SPDX-License-Identifier: Apache-2.0
"""The picture of a budget's curve."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import image

from bench import curve

GIB = 2**30


def point(budget: int, kept: int, offloaded: int, recomputed: int, seconds: float) -> dict[str, float]:
    sizes = {"budget": budget, "kept": kept, "offloaded": offloaded, "recomputed": recomputed}
    return {**{name: size * GIB for name, size in sizes.items()}, "seconds": seconds, "bound": 0.3}


def found(kept: int) -> dict:
    curve_of = [point(16, 0, 4, 6, 0.4), point(30, 10, 0, 0, 0.3)]
    chosen = point(20, kept, 3, 7 - kept, 0.32)
    return {
        "plain": {"reserved": 31 * GIB, "ms": 300.0},
        "explained": {"curve": curve_of, "chosen": chosen},
    }


def test_the_chosen_point_and_the_other_ways_are_in_the_picture(tmp_path: Path) -> None:
    ways = {"checkpoint": {"reserved": 18 * GIB, "ms": 390.0}}
    pictures = []
    for name, kept, beside in (("one", 3, ways), ("other", 5, ways), ("alone", 3, {})):
        curve.draw(found(kept), beside, tmp_path / f"{name}.png")
        pictures.append(image.imread(tmp_path / f"{name}.png"))
    one, other, alone = pictures
    assert one.shape == other.shape == alone.shape
    assert (one != other).any() and (one != alone).any()


def test_a_curve_without_points_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        curve.draw({"explained": {}}, {}, tmp_path / "none.png")
