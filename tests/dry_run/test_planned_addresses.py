# SPDX-License-Identifier: Apache-2.0
"""Steps repeat at planned addresses although other parts of the model state leave in each of them."""

import re
import sys

from launched import spillway

PROGRAM = """
import spillway
import torch
from torch import nn

# 512 MiB of parameters, twice as much of states
model = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(32))).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def counted():
    stats = spillway.stats()
    return stats["model_state"]["copied_bytes"], stats["devices"][0]["heap"]["replayed_allocations"]


for step in range(14):
    before = counted()
    model(torch.randn(256, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    copied, replayed = (now - then for now, then in zip(counted(), before))
    print("copied:", copied, "replayed:", replayed)
"""


def steps(tmp_path, budget):
    """Bytes copied and allocations replayed, by step."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = spillway("dry-run", "h200", f"--budget={budget}", "--", sys.executable, tmp_path / "program.py")
    return [tuple(map(int, found)) for found in re.findall(r"copied: (\d+) replayed: (\d+)", done.stdout)]


def test_where_little_of_the_model_state_leaves(tmp_path):
    for copied, replayed in steps(tmp_path, "2100MiB")[-2:]:
        assert copied > 0
        assert replayed > 32 * 2  # at least the results of the layers


def test_where_much_of_it_leaves_its_memory_is_not_kept_by_a_plan(tmp_path):
    for copied, replayed in steps(tmp_path, "1400MiB")[-2:]:
        assert copied > 1400 << 17  # an eighth of the budget
        assert replayed == 0
