# SPDX-License-Identifier: Apache-2.0
"""Runs at the end of `import torch`: PyTorch calls `run` (entry point group torch.backends), so that
scripts need no change."""

import ctypes
import os
import sys

BAD_USAGE = 2


def run() -> None:
    """Installs the emulated GPU's operators and patches, then applies the settings of the environment."""
    process = ctypes.CDLL(None)
    if hasattr(process, "spillway_preload_job_started"):
        process.spillway_preload_job_started()
    _emulate(process)

    from spillway import _job

    _job.start()


def _emulate(process: ctypes.CDLL) -> None:
    """Does nothing unless SPILLWAY_EMULATE=1 and the emulated CUDA runtime is preloaded.

    Ends the process with one line where both are so and the emulation cannot work: a script must not go on to
    fail in its first operator with an error that does not name the cause.
    """
    if os.environ.get("SPILLWAY_EMULATE") != "1" or not hasattr(process, "spillway_emulator_ready"):
        return
    if process.spillway_emulator_ready() == 0:
        raise SystemExit(BAD_USAGE)  # the runtime has logged why

    import torch

    if torch.version.cuda is None:
        print(
            f"spillway-emulator: torch {torch.__version__}: is not a CUDA build. Install a CUDA build of "
            "torch.",
            file=sys.stderr,
        )
        raise SystemExit(BAD_USAGE)
    if process.spillway_emulator_install_operators() != 0:
        raise SystemExit(BAD_USAGE)  # as above

    from spillway import _patches

    _patches.apply(torch)
    if os.environ.get("SPILLWAY_EMULATE_POISON") == "1":
        from spillway.launch import LIBRARIES

        operators = ctypes.CDLL(str(LIBRARIES / "libspillway_emulator_operators.so"))
        torch.cuda._lazy_call(operators.spillway_operators_poison)  # the allocator must have begun
    answers = os.environ.get("SPILLWAY_EMULATE_ANSWERS")
    if answers and process.spillway_emulator_shape_only() != 0:
        from spillway.dry_run import watch

        watch.start(answers)
    if process.spillway_emulator_checks() != 0:
        from spillway import _host_reads

        _host_reads.observe()
