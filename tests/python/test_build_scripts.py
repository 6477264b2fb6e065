# SPDX-License-Identifier: Apache-2.0
"""The scripts under odd shells, and beside each other: in a copy of them whose tools are stand-ins."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "scripts").iterdir()
    if path.is_file() and os.access(path, os.X_OK)
)

# Reports on a FIFO that it configures, and waits for a word on another one.
CMAKE = """#!/bin/sh
[ "$1" = --preset ] || exit 0
mkdir -p build/release
mkdir build/release/configuring || exit 1
echo configuring > configures
read -r _ < may_go_on
rmdir build/release/configuring
touch build/release/build.ninja
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With a bootstrap that does nothing."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    executable(folder / "scripts/bootstrap", "#!/bin/sh\nmkdir -p build; echo python3 > build/python-path\n")
    executable(folder / "tools/cmake", CMAKE)
    return folder


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def environment(project: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("CDPATH", "SPILLWAY_OFFLINE")}
    return clean | {"PATH": f"{project / 'tools'}:{os.environ['PATH']}"} | more


def helped(project: Path, script: str, **more: str) -> tuple[int, str]:
    done = subprocess.run(
        [script, "--help"],
        cwd=project,
        env=environment(project, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("script", [each for each in SCRIPTS if each != "scripts/bootstrap"])
def test_an_exported_cdpath_changes_nothing(project: Path, script: str) -> None:
    if not (project / script).read_text().startswith("#!/usr/bin/env bash"):
        pytest.skip("not a shell script")
    plain = helped(project, script)
    assert plain[0] == 0 and plain[1].startswith("Usage: ")
    elsewhere = project / "elsewhere"
    (elsewhere / "scripts").mkdir(parents=True)
    for path in (".", str(project), f"{elsewhere}:.", str(elsewhere)):
        assert helped(project, script, CDPATH=path) == plain


def test_an_exported_cdpath_does_not_lead_ci_elsewhere(project: Path) -> None:
    for name in ("lint", "test"):
        executable(project / "scripts" / name, "#!/bin/sh\npwd\n")
    (project / "elsewhere/.ci").mkdir(parents=True)
    done = subprocess.run(
        [".ci/run"],
        cwd=project,
        env=environment(project, CDPATH=str(project / "elsewhere")),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, [str(project)] * 2), done.stderr


def test_the_second_of_two_first_builds_waits_for_the_first(project: Path) -> None:
    for name in ("configures", "may_go_on"):
        os.mkfifo(project / name)

    def build() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["scripts/build"],
            cwd=project,
            env=environment(project),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    with build() as first:
        assert (project / "configures").read_text() == "configuring\n"
        with build() as second:
            assert second.stdout is not None and "waiting for another process" in second.stdout.readline()
            (project / "may_go_on").write_text("now\n")
            assert first.wait(timeout=60) == 0
            assert second.wait(timeout=60) == 0
            assert "configuring" not in second.stdout.read()  # the first one has


def test_bootstrap_waits_for_another_one(project: Path) -> None:
    shutil.copy(ROOT / "scripts/bootstrap", project / "scripts/bootstrap")
    (project / "build").mkdir()
    (project / "python/spillway").mkdir(parents=True)
    shutil.copy(ROOT / "python/spillway/_torch_versions.py", project / "python/spillway")
    with open(project / "build/bootstrap.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            ["scripts/bootstrap", "--offline"],
            cwd=project,
            env=environment(project),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None and "waiting for another process" in process.stdout.readline()
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert "waiting" not in process.communicate(timeout=120)[0]
