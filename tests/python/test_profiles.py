# SPDX-License-Identifier: Apache-2.0
"""Profiles of GPUs for the emulated one: what they set, what wins over them, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import assert_refused, call, seen_by_command, settings_of, spillway
from spillway import launch, profiles

H100 = {
    "SPILLWAY_EMULATE": "1",
    "SPILLWAY_EMULATE_MEMORY": "79.11GiB",
    "SPILLWAY_EMULATE_CUDA_CONTEXT": "0.5GiB",
    "SPILLWAY_EMULATE_CAPABILITY": "9.0",
    "SPILLWAY_EMULATE_MULTIPROCESSORS": "132",
    "SPILLWAY_EMULATE_CLOCK": "virtual",
    "SPILLWAY_EMULATE_LINK_H2D": "55400000000",
    "SPILLWAY_EMULATE_LINK_D2H": "54900000000",
    "SPILLWAY_EMULATE_LATENCY": "3us",
    "SPILLWAY_EMULATE_RATES": profiles.read("h100").settings(True)["rates"],
}
MINE = """
name = "mine"
memory = "3GiB"
link_h2d = "2GiB"
link_d2h = 1_000_000
latency = "5us"
"""
VIRTUAL = ("--clock", "virtual")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    return file


def emulated(**settings: str) -> dict[str, str]:
    return {"SPILLWAY_EMULATE": "1"} | {f"SPILLWAY_EMULATE_{name}": each for name, each in settings.items()}


def test_the_profiles_are_those_that_are_documented() -> None:
    known = "a100-40g a100-80g b200 gh200 h100 h200 l4 l40s rtx-pro-6000 rtx4090 rtx5090"
    assert profiles.names() == known.split()
    text = (Path(__file__).parents[2] / "docs/jobs.md").read_text()
    assert all(f"`{name}`" in text for name in profiles.names())


@pytest.mark.parametrize("name", profiles.names())
def test_each_profile_can_be_used(name: str) -> None:
    env = launch.environment(True, profile=name, base={}, clock="virtual")
    profile = profiles.read(name)
    assert profile.name.startswith("NVIDIA ")
    assert env["SPILLWAY_EMULATE_MEMORY"] == profile.memory
    assert env["SPILLWAY_EMULATE_CUDA_CONTEXT"] == profile.cuda_context
    assert env["SPILLWAY_EMULATE_CAPABILITY"] == profile.capability
    assert env["SPILLWAY_EMULATE_MULTIPROCESSORS"] == profile.multiprocessors
    assert env["SPILLWAY_EMULATE_LINK_H2D"] == profile.link_h2d
    assert env["SPILLWAY_EMULATE_LINK_D2H"] == profile.link_d2h
    assert env["SPILLWAY_EMULATE_LATENCY"] == profile.latency
    rates = dict(item.split("=") for item in env["SPILLWAY_EMULATE_RATES"].split(","))
    assert float(rates["half"]) > float(rates["single"]) >= float(rates["double"])
    assert 0 < float(rates["attention_backward"]) <= float(rates["product"]) < 1


def test_rates_that_are_given_leave_the_profile_s_others() -> None:
    given = {"rates": "half=7e14,product=0.8", "clock": "virtual"}
    env = launch.environment(True, profile="h200", base={}, **given)
    changed = dict(item.split("=") for item in env["SPILLWAY_EMULATE_RATES"].split(","))
    own = dict(item.split("=") for item in str(profiles.read("h200").rates).split(","))
    assert changed == own | {"half": "7e14", "product": "0.8"}
    alone = launch.environment(True, base={}, **given)
    assert alone["SPILLWAY_EMULATE_RATES"] == given["rates"]


def test_a_file_that_is_like_a_profile_has_that_one_s_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nlike = "h200"\nmemory = "3GiB"\n[rates]\nhalf = 7e14\n')
    mine, like = (profiles.read(name).settings(True) for name in (str(file), "h200"))
    own = dict(item.split("=") for item in str(like["rates"]).split(","))
    rates = dict(item.split("=") for item in str(mine["rates"]).split(","))
    assert rates == own | {"half": "700000000000000.0"}
    assert mine == like | {"memory": "3GiB", "rates": mine["rates"]}


def test_a_dry_run_has_the_virtual_clock_and_so_the_profile_s_link() -> None:
    seen = settings_of(seen_by_command("dry-run", "h100"))
    assert seen.pop("SPILLWAY_EMULATE_ANSWERS")  # a private folder of this run
    assert seen == {name: each for name, each in H100.items() if name != "SPILLWAY_EMULATE_CLOCK"} | {
        "SPILLWAY_EMULATE_SHAPE_ONLY": "1"
    }


def test_a_program_finds_the_profile_s_memory() -> None:
    code = "import torch; print(torch.cuda.get_device_properties(0).total_memory)"
    result = spillway("emulate", "l4", "--", sys.executable, "-c", code)
    granules = int(22.03 * 2**30) // 2**21
    assert (result.returncode, result.stdout) == (0, f"{granules * 2**21}\n"), result.stderr


def test_a_profile_gives_memory_and_with_the_virtual_clock_the_link() -> None:
    assert settings_of(seen_by_command("emulate", "h100")) == emulated(
        MEMORY="79.11GiB", CUDA_CONTEXT="0.5GiB", CAPABILITY="9.0", MULTIPROCESSORS="132"
    )
    assert settings_of(seen_by_command("emulate", "h100", *VIRTUAL)) == H100
    assert settings_of(seen_by_command("emulate", *VIRTUAL, "h100")) == H100


def test_a_file_of_one_s_own_is_a_profile(mine: Path) -> None:
    assert settings_of(seen_by_command("emulate", mine, *VIRTUAL)) == emulated(
        MEMORY="3GiB", CLOCK="virtual", LINK_H2D="2GiB", LINK_D2H="1000000", LATENCY="5us"
    )


def test_options_win_over_a_profile_and_a_profile_over_what_is_inherited() -> None:
    options = ("--memory", "2GiB", "--latency", "9us")
    assert settings_of(
        seen_by_command("emulate", "h100", *VIRTUAL, *options, SPILLWAY_EMULATE_LINK_D2H="1GiB")
    ) == H100 | {"SPILLWAY_EMULATE_MEMORY": "2GiB", "SPILLWAY_EMULATE_LATENCY": "9us"}


def test_the_variable_names_a_profile_for_what_no_other_variable_states() -> None:
    inherited = {"SPILLWAY_EMULATE_PROFILE": "h100", "SPILLWAY_EMULATE_LATENCY": "9us"}
    seen = settings_of(seen_by_command("emulate", *VIRTUAL, **inherited))
    assert seen == H100 | {"SPILLWAY_EMULATE_LATENCY": "9us"}  # it alone is of the launcher, and gone
    seen = settings_of(seen_by_command("emulate", "l4", SPILLWAY_EMULATE_PROFILE="h100"))
    assert seen == emulated(MEMORY="22.03GiB", CUDA_CONTEXT="0.5GiB", CAPABILITY="8.9", MULTIPROCESSORS="58")


@pytest.mark.parametrize("command", ["emulate", "dry-run"])
@pytest.mark.parametrize("words", [("l4", "--memory", "2GiB"), ("--memory", "2GiB", "l4")])
def test_the_profile_is_one_word_anywhere_before_the_command(command: str, words: tuple[str, ...]) -> None:
    seen = settings_of(seen_by_command(command, *words))
    assert (seen["SPILLWAY_EMULATE_MEMORY"], seen["SPILLWAY_EMULATE_CAPABILITY"]) == ("2GiB", "8.9")


@pytest.mark.parametrize("command", ["emulate", "dry-run"])
def test_words_before_the_command_that_are_no_profile_are_refused(command: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    run = ("--", "touch", started)
    wrong = call(command, "h1000", "--ratio", "0.5", *run)
    assert_refused(wrong, f"spillway {command}: h1000: ")
    assert all(f" {name}" in wrong.stderr for name in profiles.names())
    two = call(command, "h100", "h200", *run)
    assert_refused(two, f"spillway {command}: h200: ")
    assert_refused(call(command, "", *run), f"spillway {command}: ''")
    assert not started.exists()


@pytest.mark.parametrize(
    "words", [(), ("h100",), (sys.executable, "-c", ""), ("--ratio", "0.5"), ("h100", "--")]
)
@pytest.mark.parametrize("command", ["emulate", "dry-run"])
def test_the_command_stands_behind_two_dashes(command: str, words: tuple[str, ...]) -> None:
    result = call(command, *words)
    assert_refused(result, f"spillway {command}: ")
    assert f"spillway {command} -- python train.py" in result.stderr  # an example


def test_env_knows_profiles_too() -> None:
    result = call("env", "--emulate", "h100", SPILLWAY_EMULATE_PROFILE="l4")
    assert result.returncode == 0, result.stderr
    assert "export SPILLWAY_EMULATE_MEMORY=79.11GiB\n" in result.stdout
    assert "unset SPILLWAY_EMULATE_PROFILE\n" in result.stdout


def test_rates_may_leave_out_the_costs_of_mapping_memory(tmp_path: Path) -> None:
    whole = (Path(profiles.__file__).parent / "h100.toml").read_text()
    costs = ("create", "map", "access", "unmap", "release")
    file = tmp_path / "old.toml"
    file.write_text("\n".join(line for line in whole.splitlines() if not line.startswith(costs)))
    assert "create" not in file.read_text()
    rates = dict(each.split("=") for each in profiles.read(str(file)).settings(True)["rates"].split(","))
    assert all(float(rates[cost]) > 0 for cost in costs)
    assert float(rates["create_rate"]) > 1e9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("5us", "5"), "latency=5: "),
        (('"5us"', "5.0"), "latency=5.0: "),
        (('"3GiB"', "true"), "memory=True: "),
        (('"mine"', "7"), "name=7: "),
        (("latency", "speed"), "speed: "),
        (('"5us"', '"5us"\nrates = 5'), "rates=5: "),
        (('"5us"', '"5us"\n[rates]\nhalf = "fast"'), "rates=half=fast: "),
        (('"5us"', '"5us"\n[rates]\nhalf = 5'), "rates: memory, tf32,"),
        (('"5us"', '"5us"\nlike = "h10"'), "like=h10: "),
        (('latency = "5us"', ""), "latency is missing"),
        (('"mine"', "mine"), "is not a TOML file (Invalid value (at line 2, column 8)). Name another file."),
    ],
)
def test_a_file_that_is_no_profile_is_one_line_and_starts_nothing(
    change: tuple[str, str], said: str, mine: Path
) -> None:
    assert change[0] in MINE
    mine.write_text(MINE.replace(*change))
    started = mine.with_name("started")
    assert_refused(call("emulate", mine, "--", "touch", started), f"{mine}: {said}")
    assert not started.exists()


@pytest.mark.parametrize(
    ("words", "inherited", "said"),
    [
        (["emulate", "/nowhere/a.toml", "--", "true"], {}, "/nowhere/a.toml: "),
        (["emulate", "--", "true"], {"SPILLWAY_EMULATE_PROFILE": "h99"}, "h99: "),
        (["env", "--emulate=h99"], {}, "h99: "),
        (["env", "--emulate="], {}, "--emulate=: "),
    ],
)
def test_an_unknown_profile_is_one_line(words: list[str], inherited: dict[str, str], said: str) -> None:
    assert_refused(call(*words, **inherited), said)
