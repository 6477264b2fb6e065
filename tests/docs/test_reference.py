# SPDX-License-Identifier: Apache-2.0
"""The reference of the site has every public name, command, option, setting and header."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import spillway
from spillway.cli import COMMANDS
from spillway.settings import ALL

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs/site"))

import reference  # noqa: E402

PUBLIC = ["spillway", *(f"spillway.{name}" for name in dir(spillway) if name in reference.MODULES)]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages(ROOT)


def test_every_public_module_is_described() -> None:
    modules = {name for name in dir(spillway) if f"spillway.{name}" in sys.modules} - set(spillway.__all__)
    assert len(modules) >= 5
    assert modules <= set(reference.MODULES)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_described(module: str, pages: dict[str, str]) -> None:
    names = [name for name in importlib.import_module(module).__all__ if not name.startswith("_")]
    assert names
    for name in names:
        assert f"`{module}.{name}`" in pages["reference/python.md"] or (
            f'id="{module}.{name}"' in pages["reference/python.md"]
        ), f"{module}.{name}"


def test_every_command_is_described(pages: dict[str, str]) -> None:
    for name in COMMANDS:
        assert f"Usage: spillway {name}" in pages["reference/commands.md"], name


def test_every_setting_is_described(pages: dict[str, str]) -> None:
    rows = pages["reference/settings.md"].splitlines()
    assert len(ALL) > 30
    for each in ALL.values():
        assert [row for row in rows if f"| `{each.variable}` |" in row and each.help in row], each.variable


def test_every_header_is_shown(pages: dict[str, str]) -> None:
    headers = sorted((ROOT / "include/spillway").rglob("*.h"))
    assert headers
    for header in headers:
        shown = header.read_text(encoding="utf-8").rstrip()
        assert shown in pages["reference/c.md"] + pages["reference/cpp.md"], header
