# SPDX-License-Identifier: Apache-2.0
"""Provokes one error of each kind that a user can meet, and renders what the user reads.

`python scripts/messages.py --write` writes the result to samples.md; a test provokes them again and compares.
Sizes, addresses and versions that differ between runs and machines are replaced.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
SNAPSHOT = FOLDER / "samples.md"
HEADER = """# A sample of each error

Each was provoked as its command or its code shows, by `python scripts/messages.py --write`; a test
compares. Values that differ between runs are replaced: `SIZE`, `ADDRESS`, `VERSION`, `FOLDER`.
"""


class Sample(NamedTuple):
    title: str
    shown: str  # the command line or the code
    text: str


class Command(NamedTuple):
    """A call of `spillway`, in a folder with these files."""

    title: str
    arguments: str
    files: Mapping[str, bytes] = {}
    environment: Mapping[str, str] = {}


LOG = b'{"spillway_run_log": 2, "process": 7, "spillway": "0.1.0", "started": 1.0}\n'
COMMANDS = (
    Command("A size without a unit", "run --budget 20 -- python train.py"),
    Command("A ratio above 1", "run --ratio 1.5 -- python train.py"),
    Command("A share above the whole GPU", "run --budget 120% -- python train.py"),
    Command("Two options that exclude each other", "run --ratio 1 --budget 20GiB -- python train.py"),
    Command("An unknown profile", "emulate h99 -- python train.py"),
    Command("An option of another command", "run --steps 3 -- python train.py"),
    Command("A misspelled setting", "env", environment={"SPILLWAY_BUDGETS": "20GiB"}),
    Command("A setting with a wrong value", "env", environment={"SPILLWAY_PINNED_LIMIT": "much"}),
    Command("A missing program", "emulate -- missing-program"),
    Command("No GPU", "run -- python train.py"),
    Command("No GPU for benchmarks", "bench"),
    Command("A folder without run logs", "report empty", {"empty/.keep": b""}),
    Command("A damaged run log", "report out", {"out/7-1.spillway": LOG + b"[5]\n[6]\n"}),
    Command("A run log of another format", "report out", {"out/7-1.spillway": LOG.replace(b"2", b"1", 1)}),
    Command("A file that is not a run log", "report out", {"out/7-1.spillway": b"words\n"}),
    Command("A file that is not a trace", "trace show words", {"words": b"x" * 99}),
    Command("A trace of another format", "trace show old", {"old": b"SPILLTRC\x09\x00\x00"}),
    Command("A damaged trace", "trace show run.trace", {"run.trace": b"SPILLTRC\x01\x00\x00\x63"}),
    Command(
        "A truncated trace of CUDA calls", "trace show calls", {"calls": b"SPILLPRE" + b"\x02" + b"\0" * 40}
    ),
    Command("A folder without a job", "top empty", {"empty/.keep": b""}),
    Command("A profile without a value", "emulate mine.toml -- true", {"mine.toml": b'name = "mine"\n'}),
)

# Programs on an emulated GPU of 1 GiB. A part between blank lines is one sample: its title is a comment.
PREPARE = """
import spillway, torch
spillway.use_allocator()
def model():
    layer = lambda: torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Sigmoid())
    return torch.nn.Sequential(*(layer() for _ in range(4))).cuda()
x = torch.randn(1024, 256, device="cuda", requires_grad=True)
"""
PROGRAM = """
# A ratio above 1, in Python
spillway.CPUOffload(1.5)

# A ratio that is not a number
spillway.CPUOffload("half")

# A budget without a unit
spillway.offload(budget="20")

# A budget above the GPU's memory
spillway.offload(model(), budget="80GiB")(x)

# Neither a budget nor a limit of time
spillway.offload(model())

# Something that cannot be wrapped
spillway.offload(3, budget="1GiB")

# Something that cannot be checkpointed
spillway.checkpoint(3, x)

# Something that is no function of autograd
spillway.recomputable(torch.nn.Linear)

# A generator in a region
@spillway.CPUOffload(1)
def batches():
    yield x

# A pattern without memory
spillway.pause("weights")

# Memory without a tag
spillway.pause("")

# A resume of memory that is not paused
with spillway.tag("held"):
    held = torch.empty(1 << 20, device="cuda")
spillway.resume("held")

# A tag that is not a path
with spillway.tag("a//b"):
    pass

# A wrong limit
spillway.memory.set_limit("much")

# A layer of an OffloadModel that is not a module
cuda, cpu = torch.device("cuda"), torch.device("cpu")
spillway.OffloadModel([3], device=cuda, offload_device=cpu, num_slices=1)

# Two budgets for one GPU
with spillway.offload(budget="512MiB"), spillway.offload(budget="256MiB"):
    x.sigmoid()

# A saved tensor that was overwritten
with spillway.CPUOffload(1):
    y = x.sigmoid()
    loss = y.square().sum()
y.detach().add_(1)
loss.backward()

# A plan file that is not one
open("plans.json", "w").write("{}")
region = spillway.offload(budget="512MiB", plans="plans.json")
with region:
    pass

# A plan file of a newer version
open("newer.json", "w").write('{"spillway_plans": 99}')
region = spillway.offload(budget="512MiB", plans="newer.json")
with region:
    pass

# The GPU's memory is exhausted
torch.empty(1 << 30, dtype=torch.uint8, device="cuda")

# Pinned host memory is exhausted
with spillway.tag("large"):
    large = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
spillway.pause("large")

# A budget that is too small
net = model()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(4):
    with spillway.offload(budget="2MiB"):
        net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OTHERS = {
    "A call before CUDA's allocator is Spillway's": (
        (),
        "import spillway, torch\ntorch.zeros(1, device='cuda')\nspillway.use_allocator()",
    ),
    "A race that the order checker reports": (
        ("--check",),
        "import torch\nx = torch.zeros(1 << 20, device='cuda')\n"
        "with torch.cuda.stream(torch.cuda.Stream()):\n    x.add_(1)",
    ),
    "Access to paused memory": (
        (),
        "import spillway, torch\nspillway.use_allocator()\nwith spillway.tag('weights'):\n"
        "    weights = torch.zeros(1 << 20, device='cuda')\nspillway.pause('weights')\n"
        "print(weights.sum().item())",
    ),
}
WITHOUT_DRIVER = """
import ctypes, pathlib, spillway
library = ctypes.CDLL(pathlib.Path(spillway.__file__).parent / "lib/libspillway.so")
library.spillway_last_error.restype = ctypes.c_char_p
block = ctypes.c_void_p()
library.spillway_allocate(0, ctypes.c_uint64(1 << 20), None, ctypes.byref(block))
raise SystemExit(library.spillway_last_error().decode())
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPILLWAY_", "LD_"))}
    import spillway

    package = os.pathsep.join(
        [str(Path(spillway.__file__).absolute().parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    return {**kept, "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}


def normalized(text: str) -> str:
    text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", text)
    text = re.sub(r"\d+\.\d+ [KMGT]iB", "SIZE", text)  # measured; examples have no space
    text = re.sub(r"--budget \w+ \(budget=\"\w+\"\)", '--budget SIZE (budget="SIZE")', text)
    text = re.sub(r"\([^()\s]*/\w+\.(cpp|h|inc):\d+\)", "(FILE:LINE)", text)
    return re.sub(r"\d+\.\d+\.\d+(\+\w+)?", "VERSION", text)


def run(arguments: list[str], folder: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stderr.replace(folder, "FOLDER")


def of_command(command: Command) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in command.files.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        text = run(["-m", "spillway", *command.arguments.split()], folder, **command.environment)
    given = "".join(f"{name}={value} " for name, value in command.environment.items())
    return Sample(command.title, f"{given}spillway {command.arguments}", text)


RUNNER = (
    PREPARE
    + """
import json, sys, warnings
for title, code in json.loads(sys.argv[1]):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, "sample", "exec"), globals())
        text = "nothing was raised"
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
    print(json.dumps([title, text]), file=sys.stderr)
"""
)


def of_program() -> list[Sample]:
    """All in one process: each leaves the allocator as it was."""
    parts = [part.strip() for part in re.split(r"\n\n(?=# )", PROGRAM.strip())]
    codes = [part.split("\n", 1) for part in parts]
    titled = [(title.removeprefix("# "), code) for title, code in codes]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(RUNNER)
        launcher = ["-m", "spillway", "emulate", "--memory", "1GiB", "--"]
        text = run(
            [*launcher, sys.executable, "program.py", json.dumps(titled)],
            folder,
            SPILLWAY_PINNED_LIMIT="128MiB",
        )
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('["')]
    code_of = dict(titled)
    return [Sample(title, code_of[title], shown) for title, shown in lines]


def last_lines(text: str) -> str:
    """Without the traceback and torch's advice, which differs between its versions."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if re.match(r"spillway|[\w.]+(Error|Exit): ", line))


def samples() -> list[Sample]:
    found = [of_command(command) for command in COMMANDS] + of_program()
    with tempfile.TemporaryDirectory() as folder:
        for title, (options, code) in OTHERS.items():
            launcher = ["-m", "spillway", "emulate", *options, "--"]
            Path(folder, "program.py").write_text(code)
            found.append(
                Sample(title, code, last_lines(run([*launcher, sys.executable, "program.py"], folder)))
            )
        found.append(Sample("No driver, from C", WITHOUT_DRIVER, run(["-c", WITHOUT_DRIVER], folder)))
    return found


def snapshot() -> str:
    parts = [HEADER]
    for sample in samples():
        text = normalized(sample.text.strip())
        parts.append(f"## {sample.title}\n\n```\n{sample.shown.strip()}\n```\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
