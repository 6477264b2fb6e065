# SPDX-License-Identifier: Apache-2.0
"""Programs that run under `spillway emulate --check`, each in a process of its own."""

import os
import pathlib
import sys

import pytest
from launched import spillway

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def checked():
    """Runs Python with arguments under the checker; options are those of `spillway run`."""

    def run(*arguments, **options):
        chosen = [f"--{name}={value}" for name, value in options.items()]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        return spillway("emulate", "--check", *chosen, "--", sys.executable, *arguments, PYTHONPATH=path)

    return run
