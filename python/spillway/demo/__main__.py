# SPDX-License-Identifier: Apache-2.0
"""`python -m spillway.demo`: trains the same model plain and with its activations offloaded, and compares."""

import sys

try:
    from spillway.demo.cli import main
except ModuleNotFoundError as missing:
    if missing.name not in ("rich", "matplotlib"):
        raise
    sys.exit(f"demo: the Python package {missing.name} is missing. Run pip install rich matplotlib.")

sys.exit(main(sys.argv[1:]))
