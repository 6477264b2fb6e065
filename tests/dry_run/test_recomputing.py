# SPDX-License-Identifier: Apache-2.0
"""What recomputing saves and costs in models of full size."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import spillway

PROBE = Path(__file__).parents[2] / "bench" / "figures" / "probes" / "recompute.py"
# The blocks' closed forms: what norms, activation functions, products and masks take of what is kept.
LEAST = {"llama": 0.43, "gpt2-xl": 0.40, "resnet50": 0.35, "unet": 0.50}


@cache
def step(model: str, way: str) -> dict[str, Any]:
    result = spillway("dry-run", "h200", "--", sys.executable, PROBE, model, way)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize("model", LEAST)
def test_the_share_of_a_models_blocks_is_released_and_is_fetched_once(model: str) -> None:
    plain, recomputed = step(model, "plain"), step(model, "recompute")

    assert recomputed["kept"] + recomputed["left_to_recompute"] == plain["kept"]
    assert recomputed["left_to_recompute"] >= LEAST[model] * plain["kept"]
    assert recomputed["recomputed"] == recomputed["left_to_recompute"]


def test_the_peak_of_llamas_blocks_falls_with_it() -> None:
    plain, recomputed = step("llama", "plain"), step("llama", "recompute")

    assert plain["peak"] - recomputed["peak"] >= 0.9 * recomputed["left_to_recompute"]


def test_the_predicted_time_of_a_step_hardly_grows() -> None:
    plain, recomputed = step("llama-with-head", "plain"), step("llama-with-head", "recompute")

    assert plain["ms"] < recomputed["ms"] <= 1.02 * plain["ms"]


# A layer of cuDNN's in a model, once with everything recomputed that can be.
RECURRENT = """
import json, spillway, torch
from torch import nn
layer = nn.LSTM(1024, 1024, {layers}, dropout={dropout}, device="cuda", dtype=torch.half)
x = torch.randn(128, 64, 1024, device="cuda", dtype=torch.half, requires_grad=True)
with spillway.offload(budget="64GiB"):
    loss = layer(x)[0].square().mean()
loss.backward()
print(json.dumps(spillway.stats()["tags"]["budget"]["last"]))
"""
OUTPUT = 128 * 64 * 1024 * 2


def recurrent(layers: int = 2, dropout: float = 0, **environment: str) -> tuple[int, int]:
    """Bytes that were left to be recomputed, and those that were."""
    program = RECURRENT.format(layers=layers, dropout=dropout)
    result = spillway("dry-run", "h200", "--", sys.executable, "-c", program, **environment)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[0])
    return found["left_to_recompute_bytes"], found["recomputed_bytes"]


def test_cudnns_output_and_reserve_are_recomputed_where_cublas_has_one_workspace() -> None:
    released, recomputed = recurrent(CUBLAS_WORKSPACE_CONFIG=":4096:8")

    assert released == recomputed >= OUTPUT + (2 * 5 + 1) * OUTPUT


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"},
        {"dropout": 0.5, "CUBLAS_WORKSPACE_CONFIG": ":16:8"},
    ],
)
def test_otherwise_cudnns_recurrent_layers_are_kept(variant: dict[str, Any]) -> None:
    assert recurrent(**variant) == (0, 0)


# A network under autocast whose norms compute in float32: each saves its input's cast, and a shortcut
# saves that input once more, later.
CASTS = """
import json, spillway, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(32, 256), nn.Conv2d(256, 256, 3, padding=1)
        self.shortcut = nn.Conv2d(256, 256, 1)
    def forward(self, x):
        return self.conv(nn.functional.silu(self.norm(x))) + self.shortcut(x)
model = nn.Sequential(nn.Conv2d(4, 256, 1), *(Block() for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(6):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(16, 4, 64, 64, device="cuda")).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
tag = spillway.stats()["tags"].get("job", {})
print(json.dumps([torch.cuda.max_memory_reserved(), tag.get("plan_mismatches"), tag.get("last")]))
"""


def job(code: str, *options: str) -> Any:
    result = spillway("dry-run", "h200", *options, "--", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[0])


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_steps_save_the_same_whether_a_plan_keeps_casts_or_not(share: float) -> None:
    reserved, *_ = job(CASTS)
    _, mismatches, last = job(CASTS, "--budget", str(int(share * reserved)))

    assert last["recomputed_bytes"] > 0
    assert mismatches == 0


# Another operator uses the norm's input, which no other node saves, and which then ends.
SUBSTITUTES = CASTS.replace("+ self.shortcut(x)", "+ self.shortcut(torch.sigmoid(x))")


@pytest.mark.parametrize("share", [0.5, 0.65, 0.75, 0.85])
def test_results_are_recomputed_from_what_was_saved_instead_of_a_kept_cast(share: float) -> None:
    assert SUBSTITUTES != CASTS

    reserved, *_ = job(SUBSTITUTES)
    _, mismatches, last = job(SUBSTITUTES, "--budget", str(int(share * reserved)))

    assert last["recomputed_bytes"] > 0
    assert mismatches == 0


# Blocks that are eight times as wide inside as between them. Autograd saves two wide and two narrow tensors
# of each; in its first step a budget recomputes all that it can.
NARROW = """
import json, spillway, torch
from torch import nn
blocks = [nn.Linear(*sizes, device="cuda") for sizes in [(512, 4096), (4096, 512)] * 24]
x = torch.randn(4096, 512, device="cuda", requires_grad=True)
with spillway.offload(budget="64GiB"):
    for block in blocks:
        x = torch.sin(block(x))
    loss = x.sum()
loss.backward()
print(json.dumps(spillway.stats()["tags"]["budget"]["last"]))
"""


def test_long_chains_end_where_a_network_is_narrow() -> None:
    narrow = 4096 * 512 * 4

    last = job(NARROW)

    # A chain is longer than two blocks, and only what ends one is not recomputed.
    assert 0 < last["offloadable_bytes"] <= 24 // 2 * narrow
    assert last["recomputed_bytes"] == last["left_to_recompute_bytes"]
