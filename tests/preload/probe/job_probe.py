# SPDX-License-Identifier: Apache-2.0
"""Tells a test how many bytes a script that knows nothing of it has moved: PyTorch starts this by itself."""

import os


def run():
    if "JOB_PROBE" not in os.environ:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(write)


def write(*_):
    from spillway._load import glue

    moved = sum(counts["last"]["moved_bytes"] for counts in glue().stats()["tags"].values())
    with open(os.environ["JOB_PROBE"], "a") as file:
        file.write(f"{moved}\n")
