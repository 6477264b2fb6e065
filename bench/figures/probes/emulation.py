# SPDX-License-Identifier: Apache-2.0
"""The cost of the emulated GPU beside the CPU: `emulation.py add|step|import` prints both, in seconds of CPU;
`emulation.py check` prints those of a step without and with the order checker.

Each is measured in processes of its own, whatever surrounds this one.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import timeit
from collections.abc import Callable


def children(code: str, emulate: bool, *arguments: str, check: bool = False) -> str:
    """The standard output of a Python process that runs the code, or this file where it is empty."""
    from spillway import launch

    taken = ("LD_PRELOAD", "SPILLWAY_EMULATE")
    clean = {name: value for name, value in os.environ.items() if name not in taken}
    environment = launch.environment(True, base=clean) if emulate else clean
    if check:
        environment["SPILLWAY_EMULATE_CHECK"] = "1"
    command = [sys.executable, "-c", code] if code != "" else [sys.executable, __file__, *arguments, "here"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def importing() -> dict[str, float]:
    """Medians of five each, in turns."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(5):
        for emulate, list_of in times.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            children("import torch", emulate)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            list_of.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"cpu": sorted(times[False])[2], "emulated": sorted(times[True])[2]}


def adding() -> dict[str, float]:
    import torch

    def best(device: str) -> float:
        x, y = torch.ones(4, device=device), torch.ones(4, device=device)
        return min(timeit.Timer(lambda: x + y, timer=time.process_time).repeat(50, 1000)) / 1000

    return {"cpu": best("cpu"), "emulated": best("cuda")}


def stepping() -> dict[str, float]:
    import torch
    from spillway.demo.data import standard_library
    from spillway.demo.model import SIZES, Batches, Gpt

    size = SIZES["demo"]
    batches = Batches(standard_library(), size, 0)

    def trainer(device: str) -> Callable[[], float]:
        torch.manual_seed(0)
        model = Gpt(size).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step() -> float:
            began = time.process_time()
            optimizer.zero_grad()
            loss = model(*batches.at(0, device))
            loss.backward()
            optimizer.step()
            loss.item()
            return time.process_time() - began

        step()
        return step

    steps = {"cpu": trainer("cpu"), "emulated": trainer("cuda")}
    times = [{name: step() for name, step in steps.items()} for _ in range(4)]
    return {name: min(each[name] for each in times) for name in steps}


def checking() -> dict[str, float]:
    def step(check: bool) -> float:
        return json.loads(children("", True, "step", check=check))["emulated"]

    return {"plain": step(False), "checked": step(True)}


def main() -> None:
    if sys.argv[1] == "import":
        print(json.dumps(importing()))
    elif sys.argv[1] == "check":
        print(json.dumps(checking()))
    elif sys.argv[2:] == ["here"]:
        import torch

        torch.set_num_threads(1)
        print(json.dumps({"add": adding, "step": stepping}[sys.argv[1]]()))
    else:
        print(children("", True, sys.argv[1]), end="")


main()
