# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in processes of their own that need not import torch: `Forked` keeps one process that
has imported it and done nothing else, and forks it for each run. A launcher is given `stand_in(program)`
instead of an interpreter: a short program that has the real one forked, and ends as that does.

What a run gets is what a new interpreter would give it: its own environment, paths and `__main__`, entry
points of torch included, which the first process leaves out; settings of Spillway are read after the fork.
Two things differ. What libraries read of the environment when they are loaded was read before, so a run that
differs in such variables does not fit: a stand-in then becomes an interpreter. And the preload library passes
calls through, as in all forked children: what is to be seen of it needs a process that starts.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

#: Variables whose names begin so are read after the fork.
SETTINGS = (
    *("SPILLWAY_", "PYTHONPATH", "FORKED_", "PYTEST_", "JOB_"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "RENDEZVOUS"),
)
#: But these when a library is loaded.
OF_LOADING = (
    "SPILLWAY_EMULATE",
    "SPILLWAY_DISABLE",
    "SPILLWAY_PRELOAD",
    "SPILLWAY_PRELOAD_TRACE",
    "SPILLWAY_TAG_RATIO",
)
NO_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
SOCKET = "FORKED_FROM"


def fits(environment, of_first=None):
    """Whether a run with this environment can be forked from a process with that of the first (this) one."""

    def of_loading(variables):
        return {k: v for k, v in variables.items() if k in OF_LOADING or not k.startswith(SETTINGS)}

    return of_loading(environment) == of_loading(os.environ if of_first is None else of_first)


class Forked:
    """From a process with `environment`, by default that of this one, which has imported `modules`."""

    def __init__(self, environment=None, modules=("torch", "torch._dynamo")):
        own = dict(os.environ if environment is None else environment)
        without = {k: v for k, v in own.items() if not k.startswith(SETTINGS) or k in OF_LOADING}
        without["PYTHONPATH"] = own.get("PYTHONPATH", "")
        self._folder = tempfile.TemporaryDirectory()
        self._socket = os.path.join(self._folder.name, "socket")
        self._first = subprocess.Popen(
            [sys.executable, __file__, "--first", self._socket, json.dumps(without), *modules],
            env=without | {NO_AUTOLOAD: "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._first.stdout.readline(), "the process to fork from has not started"

    def stand_in(self, *arguments):
        """The command that stands for `python arguments`, in an environment that has `variables`."""
        return [sys.executable, __file__, *map(str, arguments)]

    @property
    def variables(self):
        return {SOCKET: self._socket}

    def run(self, code, arguments=(), environment=None, timeout=300, quickly=False):
        """As subprocess.run() of `python -c code arguments` does: status, stdout and stderr. Whether the
        environment fits is the caller's question. `quickly` leaves out what libraries do at the end of a
        process, such as the report of races."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            with open(os.devnull) as nothing:
                files = [file.fileno() for file in (nothing, output, errors)]
                variables = dict(os.environ if environment is None else environment)
                options = {"anyway": True, "quickly": quickly}
                status = forked(self._socket, ["-c", code, *arguments], variables, files, timeout, **options)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
            return subprocess.CompletedProcess(code, status, *texts)

    def close(self):
        self._first.stdin.close()
        self._first.wait()
        self._first.stdout.close()
        self._folder.cleanup()


def forked(path, arguments, environment, files, timeout=None, *, anyway=False, quickly=False):
    """The status of the program as subprocess has it; None if it does not fit, unless it is forked anyway. It
    is killed when its time is over, or when this process ends."""
    request = {
        "arguments": arguments,
        "environment": environment,
        "folder": os.getcwd(),
        "anyway": anyway,
        "quickly": quickly,
    }
    message = json.dumps(request).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(path)
        if rest := message[socket.send_fds(first, [message], files) :]:
            first.sendall(rest)
        first.settimeout(timeout)
        try:
            answer = first.recv(100)
        except TimeoutError:
            first.settimeout(None)
            first.shutdown(socket.SHUT_WR)
            answer = first.recv(100)
    assert answer, "the process to fork from has ended"
    return json.loads(answer)


def next_program(path, environment):
    """Forks for each request; returns in the children with what they are to run, and at the end with None."""
    poll, running = select.poll(), {}  # descriptors of a program's process and of its connection: both
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        os.write(1, b"ready\n")
        poll.register(0, select.POLLIN)
        poll.register(listening, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready == 0:
                    return None
                if ready == listening.fileno():
                    connection, _ = listening.accept()
                    request = received(connection)
                    if not (request["anyway"] or fits(request["environment"], environment)):
                        for file in request["files"]:
                            os.close(file)
                        connection.sendall(b"null")
                        connection.close()
                        continue
                    child = os.fork()
                    if child == 0:
                        connection.close()
                        for process, other in set(running.values()):
                            os.close(process)
                            other.close()
                        return request
                    for file in request["files"]:
                        os.close(file)
                    process = os.pidfd_open(child)
                    for each in (process, connection.fileno()):
                        running[each] = (process, connection)
                        poll.register(each, select.POLLIN)
                elif ready in running:
                    process, connection = running[ready]
                    if ready != process:  # the caller has ended, or waits no more
                        poll.unregister(connection)
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        continue
                    ended = os.waitid(os.P_PIDFD, process, os.WEXITED)
                    status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                    del running[process], running[connection.fileno()]
                    poll.unregister(process)
                    os.close(process)
                    with contextlib.suppress(KeyError):
                        poll.unregister(connection)
                    with connection, contextlib.suppress(OSError):
                        connection.sendall(json.dumps(status).encode())


def received(connection):
    text, files, *_ = socket.recv_fds(connection, 1 << 16, 3)
    while not text.endswith(b"\n"):
        text += connection.recv(1 << 16)
    return json.loads(text) | {"files": files}


def become(request):
    """Makes this process what a new interpreter would be. Returns the code of its program, and its module."""
    for number, file in enumerate(request["files"]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [path for path in sys.path[1:] if path not in before]
    os.environ.clear()
    os.environ.update(request["environment"])
    what, *arguments = request["arguments"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.orig_argv[:] = [sys.executable, *request["arguments"]]
    if what == "-c":
        text, name, folder = arguments.pop(0), "<string>", ""
    else:
        text, name, folder = Path(what).read_bytes(), what, os.path.dirname(os.path.abspath(what))
        main.__file__ = what
    sys.path[:] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *own]
    sys.argv[:] = [what, *arguments]
    return compile(text, name, "exec"), main


def end(main, quickly):
    """Ends this process as an interpreter ends, except that modules are not taken apart: that copies much of
    the memory that it shares with the first process. Quickly, libraries do not learn of it either. Both
    take most of an empty program's time."""
    threading._shutdown()
    atexit._run_exitfuncs()
    main.__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    if quickly:
        os._exit(0)
    ctypes.CDLL(None).exit(0)


def stand_in(arguments):
    """Has the program forked and ends as it does, or becomes an interpreter."""
    path = os.environ.pop(SOCKET)
    status = forked(path, arguments, dict(os.environ), (0, 1, 2))
    if status is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] != "--first":
        stand_in(sys.argv[1:])

    import importlib

    for name in sys.argv[4:]:
        importlib.import_module(name)
    gc.freeze()

    chosen = next_program(sys.argv[2], json.loads(sys.argv[3]))
    if chosen is not None:
        program, module = become(chosen)
        sys.modules["torch"]._import_device_backends()
        exec(program, module.__dict__)
        end(module, chosen["quickly"])
