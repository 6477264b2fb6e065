import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    batch = torch.randn(64, 32, device="cuda")
    loss = (model(batch) - batch).square().mean()
    # With tensors away: the child lets them go, works on the CPU and ends without a trace.
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        del loss
        os._exit(int(torch.ones(8, 8).square().sum().item() != 64))
    assert os.waitpid(child, 0)[1] == 0
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item().hex())
