# SPDX-License-Identifier: Apache-2.0
"""What the cases of recomputing need: a plain run beside, and what was counted."""

import spillway
import torch

from cases.measure import last

TAG = "recompute"


def left():
    """Bytes that the last step left to be recomputed, and those that were."""
    step = last(TAG)
    return step["left_to_recompute_bytes"], step["recomputed_bytes"]


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("cuda", dtype)


def keeping():
    return spillway.CPUOffload(0, tag="kept")
