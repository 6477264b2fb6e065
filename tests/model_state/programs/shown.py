# SPDX-License-Identifier: Apache-2.0
"""A run whose model state is larger than its budget. Prints it by class as JSON, as spillway.stats() has
it, and with a report the page of spillway top."""

import json
import os

import spillway
import torch
from spillway.top import pages, reading
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16))).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
spillway.step()
classes = spillway.stats()["model_state"]["classes"]
print(
    "stats:",
    json.dumps({name: [of["resident_bytes"], of["offloaded_bytes"]] for name, of in classes.items()}),
)
if (page := pages.path_of(os.getpid())) is not None and page.exists():
    page = reading.read(page).devices[0]
    print("page:", json.dumps({name: [page.resident[name], page.on_host[name]] for name in classes}))
