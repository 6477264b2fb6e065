# SPDX-License-Identifier: Apache-2.0
"""Runs Python code in a process of its own that need not import torch: `Forked` keeps one process that has
imported it and done nothing else, and forks it for each run.

What a run gets is what a new interpreter would give it: its own environment, paths and `__main__`, entry
points of torch included, which the first process leaves out; settings of the emulated GPU are read after the
fork. Two things differ. What libraries read of the environment when they are loaded was read before, so a run
that differs in such variables does not fit. And the preload library passes calls through, as in all forked
children: what is to be seen of it needs a process that starts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

#: Variables whose names begin so are read after the fork.
SETTINGS = ("SPILLWAY_EMULATE_", "SPILLWAY_PINNED_LIMIT", "SPILLWAY_PLAN_REPLAY", "PYTHONPATH")


def fits(environment):
    """Whether a run with this environment can be forked from a process with that of this one."""

    def of_loading(variables):
        return {k: v for k, v in variables.items() if not k.startswith(SETTINGS)}

    return of_loading(environment) == of_loading(os.environ)


class Forked:
    def __init__(self, environment=os.environ):
        without = {k: v for k, v in environment.items() if not k.startswith(SETTINGS[0])}
        self._first = subprocess.Popen(
            [sys.executable, __file__],
            env=without | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code, arguments=(), environment=None, timeout=300):
        """As subprocess.run() of `python -c code arguments` does: status, stdout and stderr."""
        with tempfile.TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            request = {
                "code": code,
                "arguments": list(arguments),
                "environment": dict(os.environ if environment is None else environment),
                "output": str(output),
                "errors": str(errors),
                "timeout": timeout,
            }
            self._first.stdin.write(json.dumps(request) + "\n")
            self._first.stdin.flush()
            answer = self._first.stdout.readline()
            assert answer, "the process to fork from has ended"
            status = json.loads(answer)
            return subprocess.CompletedProcess(code, status, output.read_text(), errors.read_text())

    def close(self):
        self._first.stdin.close()
        self._first.wait()
        self._first.stdout.close()


def ended(child, timeout):
    """The child's exit status as subprocess says it; it is killed when its time is over."""
    until = time.monotonic() + timeout
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, 9)
        time.sleep(0.005)


def next_program(requests):
    """Forks for each request; returns in the children with what they are to run, and at the end with None."""
    answers = os.dup(1)
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            return request
        os.write(answers, (json.dumps(ended(child, request["timeout"])) + "\n").encode())
    return None


def become(request):
    """Makes this process what a new interpreter would be."""
    for number, name in ((1, "output"), (2, "errors")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [path for path in sys.path[1:] if path not in before]
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *own]
    sys.argv[:] = ["-c", *request["arguments"]]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__":
    import gc

    import torch
    import torch._dynamo

    gc.freeze()

    chosen = next_program(iter(sys.stdin.readline, ""))
    if chosen is not None:
        program = become(chosen)
        torch._import_device_backends()
        exec(compile(chosen["code"], "<string>", "exec"), program.__dict__)
