# SPDX-License-Identifier: Apache-2.0
"""A training run whose largest operator may need more than its budget. Prints one line of JSON."""

import json
import sys
import warnings

import spillway
import torch
from torch import nn

WIDTH, STEPS = 4096, 4  # 64 MiB a weight

warnings.simplefilter("ignore", RuntimeWarning)  # the first step only warns
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))).to("cuda")
if "kept" in sys.argv:
    spillway.memory.keep_on_device(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach="for-loop" not in sys.argv)
found = {"steps": 0, "error": None}
try:
    for _ in range(STEPS):
        model(torch.randn(8, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        found["steps"] += 1
except spillway.BudgetError as error:
    found["error"] = {
        "text": str(error),
        "smallest": error.smallest,
        "kept": error.kept,
        "keeps_model_state": error.keeps_model_state,
        "breakdown": error.breakdown.total,
        "parameters": error.breakdown.parameters,
        "states": error.breakdown.optimizer_states,
        "operator": error.operator and error.operator.operator,
        "needed": error.operator and error.operator.needed,
        "allocated": error.operator and error.operator.allocated,
        "tensors": [
            {
                "name": each.name,
                "kind": each.kind,
                "shape": each.shape,
                "dtype": each.dtype,
                "bytes": each.bytes,
            }
            for each in (error.operator.tensors if error.operator else ())
        ],
    }
found["over_budget"] = spillway.stats()["devices"][0]["heap"]["over_budget"]
found["reserved"] = torch.cuda.max_memory_reserved()
print("found:", json.dumps(found))
