# SPDX-License-Identifier: Apache-2.0
"""Declared types hold: _glue.pyi has the native module's names, and stats() has its declared keys."""

from __future__ import annotations

import ast
import re
import types
import typing
from pathlib import Path

import pytest
import spillway
from spillway import statistics

STUB = Path(spillway.__file__).with_name("_glue.pyi")

# Names and signatures of the native module; pybind11 gives a signature as the first line of a docstring.
NATIVE = """
from spillway._load import glue

def signature(native):
    return (native.__doc__ or "").splitlines()[0]

found = {}
for name in vars(glue()):
    if name.startswith("__"):
        continue
    native = getattr(glue(), name)
    if not isinstance(native, type):
        found[name] = signature(native)
        continue
    found[name] = "class"
    for member, value in vars(native).items():
        if member == "__init__" or not member.startswith("_"):
            found[f"{name}.{member}"] = signature(value) if callable(value) else "value"
report(found)
"""

# One offloaded step, and a model state above the budget, so that each part of the snapshot has an entry.
SNAPSHOT = """
import torch
import spillway
from spillway._load import glue

spillway.use_allocator()
x = torch.ones(1 << 16, device="cuda", requires_grad=True)
y = torch.ones(8, device="cuda", requires_grad=True)
with spillway.CPUOffload(1.0, tag="all"):
    loss = ((x * 2).exp().exp() / 3).sum() + (y * 2).exp().sum()
loss.backward()
spillway.step()
with spillway.offload(budget="1MiB", tag="small"):
    glue().model_state(0, 1 << 30)
report(spillway.stats())
"""


def parameters(signature: str) -> list[str]:
    """Parameter names in a pybind11 signature, without self; "_" for each that has no name."""
    depth, parts, inner = 0, [""], signature[signature.index("(") + 1 : signature.rindex(") ->")]
    for character in inner:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    names = [re.split(r"[:=]", part)[0].strip() for part in parts if part.strip()]
    return ["_" if re.fullmatch(r"arg\d+", name) else name for name in names if name != "self"]


def declared() -> dict[str, list[str] | None]:
    """Parameter names by member of the stub's class Glue; None for a class, property or value."""
    found: dict[str, list[str] | None] = {}

    def add(body: list[ast.stmt], prefix: str) -> None:
        for item in body:
            if isinstance(item, ast.ClassDef):
                found[item.name] = None
                add(item.body, f"{item.name}.")
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[prefix + item.target.id] = None
            elif isinstance(item, ast.FunctionDef):
                names = [each.arg for each in item.args.args if each.arg != "self"]
                names = ["_" if name.startswith("_") else name for name in names]
                found[prefix + item.name] = None if item.decorator_list else names

    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    (glue,) = (item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "Glue")
    add(glue.body, "")
    return found


def test_the_stub_has_the_names_and_parameters_of_the_native_module(program) -> None:
    native = {name: parameters(text) if "->" in text else None for name, text in program(NATIVE).items()}
    assert declared() == native


def check(value: object, kind: object, path: str) -> None:
    """Fails where `value` lacks a key of its declared type, has another one, or holds another type."""
    if typing.is_typeddict(kind):
        assert isinstance(value, dict), path
        hints = typing.get_type_hints(kind)
        assert set(value) == set(hints), path
        for key, inner in hints.items():
            check(value[key], inner, f"{path}[{key!r}]")
        return
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        assert isinstance(value, dict), path
        for key, inner in value.items():
            check(inner, arguments[1], f"{path}[{key!r}]")
    elif origin is list:
        assert isinstance(value, list), path
        for index, inner in enumerate(value):
            check(inner, arguments[0], f"{path}[{index}]")
    elif origin is types.UnionType or origin is typing.Union:
        if value is not None or type(None) not in arguments:
            (other,) = (each for each in arguments if each is not type(None))
            check(value, other, path)
    elif origin is typing.Literal:
        assert value in arguments, path
    else:
        assert isinstance(kind, type)
        assert type(value) is kind or (kind is float and type(value) is int), path


def test_a_snapshot_has_exactly_the_declared_keys(program) -> None:
    seen = program(SNAPSHOT)
    assert seen["devices"] and seen["tags"]["all"]["last"]["skipped"] and seen["cannot_help"]
    check(seen, statistics.Stats, "stats()")


def test_the_reasons_why_offloading_cannot_help_are_the_declared_ones() -> None:
    reasons = typing.get_args(typing.get_type_hints(statistics.CannotHelp)["reason"])
    source = Path(__file__).parents[2] / "allocator/step/cannot_help.cpp"
    function = source.read_text(encoding="utf-8").partition("helpless_reason_name(")[2].partition("\n}")[0]
    assert set(re.findall(r'return "(\w+)"', function)) == set(reasons)


def test_every_type_of_a_snapshot_is_exported() -> None:
    exported = {getattr(statistics, name) for name in statistics.__all__}

    def types_in(kind: object) -> set[object]:
        if typing.is_typeddict(kind):
            return {kind}.union(*(types_in(each) for each in typing.get_type_hints(kind).values()))
        return set().union(*(types_in(each) for each in typing.get_args(kind)))

    assert types_in(statistics.Stats) <= exported


@pytest.mark.parametrize("change", ["missing", "more", "type"])
def test_the_check_refuses_another_snapshot(change: str) -> None:
    step: dict[str, object] = dict.fromkeys(typing.get_type_hints(statistics.PauseStats), 0)
    check(step, statistics.PauseStats, "step")
    if change == "missing":
        step.popitem()
    else:
        step["more" if change == "more" else "blocks"] = "text"
    with pytest.raises(AssertionError, match="step"):
        check(step, statistics.PauseStats, "step")
