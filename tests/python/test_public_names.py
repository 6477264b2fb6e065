# SPDX-License-Identifier: Apache-2.0
"""The public names: few at the top level, the others in modules by subject, each name with one meaning."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import is_typeddict

import pytest
import spillway

PACKAGE = Path(spillway.__file__).parent
MODULES = ("compat", "emulator", "memory", "statistics", "tags")

NAMES = {
    "spillway": {
        "BudgetError",
        "CPUOffload",
        "OffloadModel",
        "__version__",
        "checkpoint",
        "checkpoint_wrapper",
        "explain",
        "microbatches",
        "offload",
        "pause",
        "recomputable",
        "recompute",
        "resume",
        "stats",
        "step",
        "tag",
        "use_allocator",
    },
    "spillway.memory": {
        "allow_eviction",
        "by_tag",
        "forbid_eviction",
        "keep_on_device",
        "library_path",
        "limit",
        "pluggable_allocator",
        "read_trace",
        "record_trace",
        "resident",
        "set_limit",
        "step_in_slices",
        "summary",
    },
    "spillway.tags": {"matches", "unwatch", "watch"},
    "spillway.emulator": {"is_dry_run", "is_emulated"},
    "spillway.compat": {
        "ActivationOffloadingMixin",
        "NoOpManager",
        "OffloadActivations",
        "disable_checkpointing",
        "get_act_offloading_ctx_manager",
        "get_lora_act_offloading_ctx_manager",
        "is_checkpointing",
        "is_recomputing",
    },
}


def submodules(package: Path) -> set[str]:
    """Names of the modules and packages in a folder."""
    files = {file.stem for file in package.glob("*.py")}
    return files | {folder.parent.name for folder in package.glob("*/__init__.py")}


@pytest.mark.parametrize("module", NAMES)
def test_a_module_exports_exactly_its_names(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == NAMES[module]


def test_statistics_exports_stats_and_its_types_alone() -> None:
    names = set(spillway.statistics.__all__)
    assert {name for name in names if not is_typeddict(getattr(spillway.statistics, name))} == {"stats"}


def test_the_top_level_stays_small() -> None:
    assert len(NAMES["spillway"] - {"__version__"}) <= 16


def test_the_top_level_lists_its_names_and_the_public_modules() -> None:
    assert dir(spillway) == sorted([*NAMES["spillway"], *MODULES])


def test_the_top_level_holds_no_other_object_of_the_package() -> None:
    """Submodules are attributes of their package; anything else is an alias that was left."""
    others = set(vars(spillway)) - NAMES["spillway"] - submodules(PACKAGE)
    owners = {name: getattr(vars(spillway)[name], "__module__", "") for name in others if name[0] != "_"}
    assert not [name for name, owner in owners.items() if str(owner).startswith("spillway")]


def test_each_name_has_one_home() -> None:
    all_names = [name for names in NAMES.values() for name in names]
    assert len(all_names) == len(set(all_names))


def test_no_public_module_shares_its_name_with_a_public_object() -> None:
    """A submodule that is imported replaces an attribute of the same name in its package."""
    public = {name for names in NAMES.values() for name in names}
    assert not public & {name for name in submodules(PACKAGE) if not name.startswith("_")}


def definitions(module: Path) -> set[str]:
    """Names of the functions and classes that a module defines at its top level."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {each.name for each in ast.parse(module.read_text()).body if isinstance(each, kinds)}


def test_no_module_shares_its_name_with_a_function_or_class_in_it() -> None:
    shared = [module for module in PACKAGE.rglob("*.py") if module.stem in definitions(module)]
    packages = PACKAGE.rglob("__init__.py")
    shared += [each for each in packages if definitions(each) & (submodules(each.parent) - {"__init__"})]
    assert not shared


def test_every_name_can_be_imported_and_is_documented() -> None:
    pytest.importorskip("torch")  # OffloadModel is a torch.nn.Module
    for module, names in NAMES.items():
        for name in names - {"__version__"}:
            assert getattr(importlib.import_module(module), name).__doc__, f"{module}.{name}"


def test_the_modules_of_public_names_come_with_the_package() -> None:
    for module in MODULES:
        assert getattr(spillway, module).__name__ == f"spillway.{module}"
