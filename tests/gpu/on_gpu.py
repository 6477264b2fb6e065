# SPDX-License-Identifier: Apache-2.0
"""`on_gpu.py COMMAND…`: runs a test on the real GPU. Without one it prints why and counts as skipped."""

from __future__ import annotations

import os
import sys

from spillway.demo.device import why_no_gpu

SKIPPED = 77  # the SKIP_RETURN_CODE in tests/gpu/CMakeLists.txt

reason = why_no_gpu()
if reason:
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
for name in [name for name in os.environ if name.startswith("SPILLWAY_EMULATE")]:
    del os.environ[name]
os.execv(sys.argv[1], sys.argv[1:])
