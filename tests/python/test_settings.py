# SPDX-License-Identifier: Apache-2.0
"""Every setting of settings.toml, as an option and as a variable of the launcher. Forms of values and rules
are claims of tests/base/settings_test.cpp, on the same checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import assert_refused, call, seen_by_command, settings_of
from spillway import _job, launch, limits, settings
from spillway.settings import ALL, JOB, SETTINGS, LaunchError, Setting

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import settings_table  # noqa: E402

# Of the settings whose values only the launcher checks.
INVALID = {
    "file": ["/not/there/plans", "/dev/null"],
    "folder": [__file__],
    "fault": ["cuMemCreate", "cuMemCreate:1=soon"],
    "profile": ["h99"],
    "text": [],
}
each_setting = pytest.mark.parametrize("setting", ALL.values(), ids=ALL)
each_option = pytest.mark.parametrize("setting", JOB + SETTINGS, ids=lambda each: each.option)


def value_of(setting: Setting) -> str:
    return setting.example or (setting.range.choices or ("1",))[0]


def needed_by(setting: Setting) -> dict[str, str]:
    """Options that the rules demand."""
    found = {}
    for rule in settings.RULES:
        if setting.variable in rule["settings"] and "needs" in rule:
            variable, _, value = rule["needs"][0].partition("=")
            found[ALL[variable].option] = value or value_of(ALL[variable])
    return found


def environment(setting: Setting, value: str, **base: str) -> dict[str, str]:
    options = {setting.option: value} | needed_by(setting)
    return launch.environment(setting.of == "emulated", base=base, **options)


def test_the_table_of_cpp_is_that_of_settings_toml() -> None:
    assert settings_table.TABLE.read_text() == settings_table.table(), (
        "settings.toml has changed: run `python scripts/settings_table.py --write`"
    )


@each_option
def test_a_valid_value_of_an_option_reaches_its_variable(setting: Setting, tmp_path: Path) -> None:
    value = str(tmp_path / "new") if setting.type in ("file", "folder") else value_of(setting)
    assert environment(setting, value)[setting.variable] == value
    inherited = environment(setting, value, **{setting.variable: (setting.range.choices or ("",))[0]})
    assert inherited[setting.variable] == value  # the option takes precedence


@each_setting
def test_an_invalid_value_is_named_as_it_was_given(setting: Setting) -> None:
    for value in INVALID.get(setting.type, ["much", "-1", "nan", "8GB\0iB"]):
        subject = value if setting.type == "profile" else f"{setting.variable}={value}"
        with pytest.raises(LaunchError) as inherited:
            launch.environment(base={setting.variable: value})
        assert str(inherited.value).startswith(f"{subject}: ") or "\0" in value
        if not setting.commands:
            continue
        with pytest.raises(LaunchError) as given:
            environment(setting, value)
        assert str(given.value).startswith(f"{setting.flag}={value}: ") or "\0" in value


@each_setting
def test_an_empty_variable_is_an_unset_one(setting: Setting) -> None:
    assert launch.environment(base={setting.variable: ""})["LD_PRELOAD"] == str(launch.SHIM)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(LaunchError, match=r"^speed: unknown option\. Use one of budget, .*assume\.$"):
        launch.environment(base={}, speed="9")
    for value in ("", "late"):
        with pytest.raises(LaunchError, match=r"^SPILLWAY_EMULATE_SHEDULE: unknown setting.*_SCHEDULE"):
            launch.environment(base={"SPILLWAY_EMULATE_SHEDULE": value})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.option)
def test_an_option_of_the_emulated_gpu_needs_it(setting: Setting) -> None:
    with pytest.raises(LaunchError, match=rf"^{setting.flag}.*: needs the emulated GPU\. Add --emulate\."):
        launch.environment(base={}, **{setting.option: True if setting.is_switch else value_of(setting)})


@pytest.mark.parametrize(
    ("options", "inherited", "said"),
    [
        ({"budget": "1GiB", "ratio": "1"}, {}, "--budget=1GiB: cannot be combined with --ratio=1. Use one"),
        (
            {"budget": "1GiB"},
            {"OFFLOAD_RATIO": "1"},
            "--budget=1GiB: cannot be combined with SPILLWAY_OFFLOAD",
        ),
        ({"plans": "p"}, {"OFFLOAD_RATIO": "1"}, "--plans=.*/p: needs a budget"),
        (
            {},
            {"REPORT_OPERATORS": "1"},
            "SPILLWAY_REPORT_OPERATORS=1: needs a report.* Set SPILLWAY_REPORT=DIR",
        ),
        ({"emulate": True, "kernels": "3", "report": "r"}, {}, "--kernels=3: needs a GPU"),
        (
            {"emulate": True, "shape_only": True},
            {"EMULATE_POISON": "1"},
            "SPILLWAY_EMULATE_POISON=1: does not",
        ),
        ({"emulate": True, "check": True}, {"EMULATE_SHAPE_ONLY": "1"}, "--check: does not .* Leave it out"),
    ],
)
def test_rules_hold_over_options_and_inherited_variables(
    options: dict[str, str | bool], inherited: dict[str, str], said: str
) -> None:
    base = {f"SPILLWAY_{name}": value for name, value in inherited.items()}
    with pytest.raises(LaunchError, match=f"^{said}"):
        launch.environment(base=base, **options)


def test_options_of_the_command_line_become_variables() -> None:
    shares = ("--tag-ratio", "mlp=0.8", "--tag-ratio", "attention.*=0.25", "--recompute")
    assert settings_of(seen_by_command("emulate", *shares, "--clock", "virtual", "--link-h2d", "55GB/s")) == {
        "SPILLWAY_EMULATE": "1",
        "SPILLWAY_TAG_RATIO": "mlp=0.8,attention.*=0.25",
        "SPILLWAY_RECOMPUTE": "1",
        "SPILLWAY_EMULATE_CLOCK": "virtual",
        "SPILLWAY_EMULATE_LINK_H2D": "55GB/s",
    }


@pytest.mark.parametrize("folder", ["/proc/out", f"{__file__}/out", "/proc", __file__, ""])
def test_a_report_that_cannot_be_written_is_refused(folder: str) -> None:
    assert_refused(call("emulate", "--report", folder, "--", "true"), f"--report={folder}: ")


def test_the_folder_of_a_report_is_the_job_s_to_make(tmp_path: Path) -> None:
    assert call("emulate", "--report", tmp_path / "not" / "there", "--", "true").command == ["true"]
    assert not list(tmp_path.iterdir())


def test_disabled_a_job_needs_no_gpu() -> None:
    assert call("run", "--ratio", "0.5", "--", "true", SPILLWAY_DISABLE="1").command == ["true"]


# In the job itself


def wanted(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, str]:
    for name, value in variables.items():
        monkeypatch.setenv(f"SPILLWAY_{name}", value)
    return _job.wanted()


def test_a_job_is_configured_by_what_is_set_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wanted(monkeypatch) == {}
    assert wanted(monkeypatch, BUDGET="80%", RECOMPUTE="0", REPORT="", LOG="1") == {"budget": "80%"}
    assert wanted(monkeypatch, RECOMPUTE="1") == {"budget": "80%", "recompute": "1"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"BUDGET": "20GB"}, "SPILLWAY_BUDGET=20GB: expected a size"),
        ({"OFFLOAD_RATIO": "1.01"}, "SPILLWAY_OFFLOAD_RATIO=1.01: expected a number from 0 to 1"),
        ({"TIME_LIMIT": "2", "OFFLOAD_RATIO": "1"}, "SPILLWAY_TIME_LIMIT=2: cannot be combined"),
        ({"PLANS": "plans"}, "SPILLWAY_PLANS=plans: needs a budget"),
    ],
)
def test_a_job_that_cannot_be_configured_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(LaunchError, match=f"^{said}"):
        wanted(monkeypatch, **variables)


# In the API


def test_sizes_of_the_api_are_read_alike() -> None:
    assert limits.size_of("limit", "1.5GiB") == 3 << 29
    assert limits.size_of("limit", 7) == 7
    for wrong in ("8GB", "1e9", "", "-1", "1GiB\0", "8388608TiB", "0"):
        with pytest.raises(ValueError, match=r"^limit must be "):
            limits.size_of("limit", wrong)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "_LIBRARY", tmp_path / "libspillway_settings.so")
    settings._library.cache_clear()
    with pytest.raises(LaunchError, match=r"libspillway_settings\.so: is missing\. Build it"):
        launch.environment(base={}, ratio="0.5")
