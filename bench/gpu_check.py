# SPDX-License-Identifier: Apache-2.0
"""The steps of scripts/gpu_check, each with a limit, and the one JSON that they leave."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

# The one module of the package that is needed here; the package itself may not be built yet.
from spillway.demo.device import why_no_gpu

ROOT = Path(__file__).parents[1]
BENCHES = ("copy", "overlap", "calls", "alloc", "pool")
LIMIT = 540  # seconds in all
SOME_FAILED = 1  # pytest's exit status
TREE = ROOT / "build" / "release"
CARRIED = ROOT / "build" / "carried"  # what the machine lacks, brought along
# Built here, or where GoogleTest is missing, brought along.
CONFORMANCE = (
    TREE / "tests" / "conformance" / "conformance_test",
    CARRIED / "conformance_test",
)


@dataclass
class Check:
    """One run of the steps; its document is written again after each of them."""

    dry_run: bool
    folder: Path
    log: TextIO
    began: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)

    def step(self, name: str, limit: float, work: Callable[[float], int]) -> bool:
        """Runs `work` with the seconds that it may take; its result is an exit status."""
        begun = time.monotonic()
        allowed = min(limit, LIMIT - (begun - self.began))
        print(f"gpu_check: {name}", flush=True)
        if allowed < 5:
            status = "no time left"
        else:
            try:
                code = work(allowed)
                status = "ok" if code == 0 else f"exit status {code}"
            except subprocess.TimeoutExpired:
                status = f"stopped after {allowed:.0f} s"
            except (OSError, ValueError) as error:
                status = str(error)
        seconds = round(time.monotonic() - begun, 1)
        self.steps.append({"step": name, "status": status, "seconds": seconds})
        self.write()
        if status != "ok":
            print(f"gpu_check: {name}: {status}; its words are in {self.log.name}", file=sys.stderr)
        return status == "ok"

    def run(self, command: list[str], limit: float, output: Path | None = None, **environment: str) -> int:
        """Its words go into the log, those on stdout into `output` where that is given."""
        self.log.write(f"\n--- {' '.join(command)}\n")
        self.log.flush()
        settings = {**os.environ, **environment}
        with (
            output.open("w") if output else nullcontext(self.log) as stdout,
            subprocess.Popen(
                command, cwd=ROOT, env=settings, stdout=stdout, stderr=self.log, start_new_session=True
            ) as process,
        ):
            try:
                return process.wait(limit)
            except BaseException:
                os.killpg(process.pid, 9)  # the command and all that it started
                raise

    def write(self) -> None:
        document = {"dry_run": self.dry_run, "steps": self.steps, **self.results}
        (self.folder / "gpu_check.json").write_text(json.dumps(document, indent=1) + "\n")

    def keep(self, name: str) -> None:
        """Takes a step's own JSON into the document."""
        path = self.folder / f"{name}.json"
        if path.exists():
            self.results[name] = json.loads(path.read_text())
            path.unlink()


def python() -> str:
    return (ROOT / "build" / "python-path").read_text().strip()


def conform(check: Check, limit: float) -> int:
    """The claims about the driver; those that it does not meet are kept by name."""
    program = next((str(path) for path in CONFORMANCE if path.exists()), None)
    if program is None:
        raise ValueError("no conformance_test: install GoogleTest, or bring it in build/carried")
    backend = "emulated" if check.dry_run else "real"
    path = check.folder / "conformance.json"
    status = check.run(
        [program, f"--gtest_filter=*/{backend}", f"--gtest_output=json:{path}"],
        limit,
        SPILLWAY_EMULATE="1",  # for the emulated GPU that is linked to it
        LD_LIBRARY_PATH=str(TREE / "python" / "spillway" / "lib"),
    )
    check.keep("conformance")
    check.results["conformance"] = summary(check.results.get("conformance", {}))
    return status


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """How many claims there were, which failed and how, and which were skipped, from GoogleTest's report."""
    cases = [case for suite in report.get("testsuites", []) for case in suite["testsuite"]]
    failed = {
        f"{case['classname']}.{case['name']}": [failure["failure"] for failure in case["failures"]]
        for case in cases
        if "failures" in case
    }
    return {
        "claims": len(cases),
        "failed": failed,
        "skipped": sum(case["result"] == "SKIPPED" for case in cases),
    }


def test(check: Check, limit: float) -> int:
    """Those of the LibTorch layer that are marked gpu."""
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TEST_LIBRARIES": str(TREE / "tests" / "support")}
    if check.dry_run:
        library = str(TREE / "python" / "spillway" / "lib" / "libspillway_emulator.so")
        environment |= {"LD_PRELOAD": library, "SPILLWAY_EMULATE": "1"}
    return tests_of(
        check, limit, "tests", ["tests/torch_glue", "tests/gpu/test_mixed_devices.py"], environment
    )


def scripts(check: Check, limit: float) -> int:
    """Unchanged scripts under `spillway run`."""
    environment = {} if check.dry_run else {"REAL_GPU": "1"}
    return tests_of(check, limit, "scripts", ["tests/preload/test_scripts.py"], environment)


def tests_of(check: Check, limit: float, name: str, files: list[str], environment: dict[str, str]) -> int:
    """Several at once where pytest-xdist is; what failed so runs once more by itself."""
    end = time.monotonic() + limit
    failures = check.folder / f"{name}_failures.txt"
    environment |= {
        "PYTHONPATH": f"{TREE / 'python'}:{ROOT / 'tests' / 'support'}",
        "FAILURES": str(failures),
    }
    pytest = [python(), "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}"]
    # With a cache, for what failed.
    pytest += [
        "-o",
        "addopts=-q -ra -p at_once",
        "-o",
        f"cache_dir={ROOT / 'build' / 'gpu_check_cache'}",
        *files,
    ]
    at_once = several()
    status = check.run([*pytest, *at_once, f"--junitxml={check.folder / name}.xml"], limit, **environment)
    if status == SOME_FAILED and at_once:
        again = ["--last-failed", f"--junitxml={check.folder / name}_again.xml"]
        status = check.run([*pytest, *again], end - time.monotonic(), **environment)
    return status


def several() -> list[str]:
    """pytest-xdist's options where it is; tests that share what they have run stay together."""
    script = "import importlib.util as u, sys; sys.exit(u.find_spec('xdist') is None)"
    found = subprocess.run([python(), "-c", script], check=False).returncode == 0
    return ["-n", str(min(16, os.cpu_count() or 1)), "--dist", "loadgroup"] if found else []


def demonstrate(check: Check, limit: float) -> int:
    device = "emulated" if check.dry_run else "cuda"
    files = ["--json", str(check.folder / "demo.json"), "--picture", str(check.folder / "demo.png")]
    tree = str(TREE / "python")
    status = check.run([python(), "-m", "spillway.demo", "--device", device, *files], limit, PYTHONPATH=tree)
    check.keep("demo")
    return status


def figures(check: Check, limit: float) -> int:
    path = str(check.folder / "figures.json")
    tree = f"{TREE / 'python'}:{ROOT}"
    command = [python(), "-m", "bench.figures", "--programs", str(TREE / "bench"), "--json", path]
    try:
        return check.run([*command, "--of-device"], limit, PYTHONPATH=tree)
    finally:
        check.keep("figures")


def benchmarks(check: Check, limit: float) -> int:
    """Copies both ways and behind kernels, calls, mapping and pinning, as users measure them."""
    path = str(check.folder / "bench.json")
    emulated = ["--emulate"] if check.dry_run else []
    command = [python(), "-m", "spillway", "bench", *BENCHES, *emulated, "--json", path]
    status = check.run(command, limit, PYTHONPATH=str(TREE / "python"))
    check.keep("bench")
    return status


def predictions(check: Check, limit: float) -> int:
    """What dry runs have predicted for this GPU, run on it, and how far off they were."""
    path = str(check.folder / "predictions.json")
    tree = f"{TREE / 'python'}:{ROOT}"
    chosen = ["--dry-run", "llama-8b-plain"] if check.dry_run else []
    command = [python(), "-m", "bench.predictions", "--score", "--json", path, *chosen]
    try:
        return check.run(command, limit, PYTHONPATH=tree)
    finally:
        check.keep("predictions")


def profile(check: Check, limit: float) -> int:
    """This GPU as a profile of the emulated one, which stays beside the document."""
    tree = f"{TREE / 'python'}:{ROOT}"
    chosen = ["--dry-run", "h100"] if check.dry_run else []
    files = [str(check.folder / "profile.toml"), "--json", str(check.folder / "profile.json")]
    status = check.run([python(), "-m", "bench.device_profile", *files, *chosen], limit, PYTHONPATH=tree)
    check.keep("profile")
    return status


def budgets(check: Check, limit: float) -> int:
    """Budgets of a model at full size in measured time, beside plain and other ways; dry as an H200's."""
    dry = ["-m", "spillway", "dry-run", "h200", "--", python()]
    peers = CARRIED / "peers"  # packages to compare with, where they were brought along
    ways = ["checkpoint"]
    if not check.dry_run:
        ways += ["save_on_cpu", *(["trl"] if (peers / "trl").exists() else [])]
    probe = ["bench/figures/probes/planning.py", "llama-8b-8-layers", "0.5", "0.75", *ways]
    path = check.folder / "budgets.txt"
    command = [python(), *(dry if check.dry_run else []), *probe]
    try:
        return check.run(command, limit, path, PYTHONPATH=f"{TREE / 'python'}:{peers}")
    finally:  # what there is, where its time was up
        lines = [line for line in path.read_text().splitlines() if line.startswith("{")]
        check.results["budgets"] = json.loads(lines[-1]) if lines else {}
        path.unlink()


# Each with the seconds that it may take, in the order in which they run.
STEPS: dict[str, tuple[float, Callable[[Check, float], int]]] = {
    "bench": (240, benchmarks),
    "conformance": (60, conform),
    "tests": (280, test),
    "scripts": (90, scripts),
    "demo": (60, demonstrate),
    "figures": (180, figures),
    "predictions": (120, predictions),
    "budgets": (240, budgets),
    "profile": (240, profile),
}


def set_up(check: Check, built: bool) -> bool:
    """What the steps need; a build that was brought along is taken as it is."""
    if built:
        return True
    ready = check.step("set-up", 60, lambda limit: check.run(["scripts/bootstrap", "--offline"], limit))
    return ready and check.step("build", 240, lambda limit: check.run(["scripts/build", "--offline"], limit))


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu_check", allow_abbrev=False)
    parser.add_argument("steps", nargs="*", metavar="STEP")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    unknown = sorted(set(options.steps) - set(STEPS))
    if unknown:
        parser.error(f"{unknown[0]}: unknown step; known are {', '.join(STEPS)}")
    dry_run = options.dry_run
    reason = why_no_gpu()
    if reason and not dry_run:
        print(f"gpu_check: no GPU here: {reason}; --dry-run uses the emulated GPU", file=sys.stderr)
        return 1
    folder = Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gpu_check.log").open("w") as log:
        check = Check(dry_run, folder.resolve(), log)
        built = set_up(check, options.built)
        if built:
            everything = ["profile"] if options.profile else [name for name in STEPS if name != "profile"]
            for name in options.steps or everything:
                limit, work = STEPS[name]
                check.step(name, limit, partial(work, check))
        ok = built and all(step["status"] == "ok" for step in check.steps)
    where = "the emulated GPU (dry run)" if dry_run else "the GPU"
    verdict = "every step succeeded" if ok else "not every step succeeded"
    print(f"gpu_check: on {where}: {verdict}: {folder}/gpu_check.json")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
