# SPDX-License-Identifier: Apache-2.0
"""The autoload loads the operators with `import torch`, or does nothing, or reports why it cannot."""

import os
import subprocess
import sys


def run_python(code, **changes):
    environment = {**os.environ, **changes}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_script_needs_no_import_of_ours_and_sees_no_output():
    done = run_python("import torch; print((torch.ones(2, device='cuda') * 3).tolist())")
    assert (done.stdout, done.stderr, done.returncode) == ("[3.0, 3.0]\n", "", 0)


def test_without_the_setting_nothing_is_installed():
    done = run_python(
        "import torch; print(open('/proc/self/maps').read())", SPILLWAY_EMULATE="0", LD_PRELOAD=""
    )
    assert done.returncode == 0
    assert "libspillway_emulator_operators" not in done.stdout


def test_without_the_runtime_nothing_is_installed():
    done = run_python("import torch; print(open('/proc/self/maps').read())", LD_PRELOAD="")
    assert done.returncode == 0
    assert "libspillway_emulator_operators" not in done.stdout


def test_a_bad_setting_stops_the_import_and_is_named():
    done = run_python("import torch", SPILLWAY_EMULATE_SCHEDULE="sideways")
    assert done.returncode != 0
    assert "SPILLWAY_EMULATE_SCHEDULE" in done.stderr


def test_installing_twice_is_installing_once():
    done = run_python(
        "import torch\n"
        "from spillway import _autoload\n"
        "_autoload.run()\n"
        "print((torch.ones(2, device='cuda') + 1).tolist())"
    )
    assert (done.stdout, done.returncode) == ("[2.0, 2.0]\n", 0), done.stderr


def test_the_loader_of_data_pins_memory_with_forked_workers():
    done = run_python(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "torch.zeros(1, device='cuda')\n"
        "data = TensorDataset(torch.arange(32.0))\n"
        "batches = list(DataLoader(data, batch_size=4, num_workers=2, pin_memory=True))\n"
        "assert all(batch.is_pinned() for (batch,) in batches)\n"
        "print(sum(batch.to('cuda', non_blocking=True).sum().item() for (batch,) in batches))"
    )
    assert (done.stdout, done.returncode) == ("496.0\n", 0), done.stderr
