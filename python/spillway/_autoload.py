# SPDX-License-Identifier: Apache-2.0
"""Loads the emulated GPU's operators into a process that has the emulated CUDA runtime.

PyTorch calls `run` itself at the end of `import torch` (entry point group torch.backends), so scripts need no
change.
"""

import ctypes
import os
import pathlib


def run() -> None:
    """Does nothing unless SPILLWAY_EMULATE=1 and the emulated CUDA runtime is preloaded.

    Raises RuntimeError where both are so and the emulation cannot work: a script must not go on to fail in
    its first operator with an error that does not say why.
    """
    if os.environ.get("SPILLWAY_EMULATE") != "1" or not _runtime_is_here():
        return
    library = pathlib.Path(__file__).parent / "lib" / "libspillway_emulator_operators.so"
    try:
        operators = ctypes.CDLL(str(library))
    except OSError as error:
        raise RuntimeError(
            f"SPILLWAY_EMULATE=1, but the emulated operators cannot be loaded: {error}"
        ) from error
    operators.spillway_operators_error.restype = ctypes.c_char_p
    if operators.spillway_operators_install() != 0:
        why = operators.spillway_operators_error().decode()
        raise RuntimeError(f"SPILLWAY_EMULATE=1, but the emulated GPU cannot work: {why}")


def _runtime_is_here() -> bool:
    return hasattr(ctypes.CDLL(None), "spillway_emulator_ready")
