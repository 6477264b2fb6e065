# SPDX-License-Identifier: Apache-2.0
"""SPILLWAY_PLAN_REPLAY: training steps that repeat get the same addresses, and the same bits."""

import pytest

TRAIN = """
import torch, spillway
spillway.use_allocator()
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)], torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses, places = [], []
for step in range(8):
    rows = 48 if step == ODD else 32
    x = torch.arange(rows * 64, device="cuda", dtype=torch.float32).view(rows, 64) / 4096
    hidden = x
    at = []
    for layer in model:
        hidden = torch.tanh(layer(hidden))
        at.append(hidden.data_ptr())
    loss = hidden.pow(2).mean()
    loss.backward()
    del hidden, x
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    del loss
    places.append(at)
heap = spillway.stats()["devices"][0]["heap"]
report([losses, places, heap["replayed_allocations"], heap["replay_mismatches"]])
"""


@pytest.mark.parametrize("odd", [-1, 5])
def test_replayed_training_has_the_same_losses(program, odd):
    script = TRAIN.replace("ODD", str(odd))
    plain, _, without, _ = program(script)
    losses, places, replayed, mismatches = program(script, SPILLWAY_PLAN_REPLAY="1")

    assert losses == plain
    assert without == 0
    assert replayed > 50
    assert mismatches == (0 if odd < 0 else 1)
    assert places[7] == places[4]
    assert (places[5] == places[4]) == (odd < 0)
