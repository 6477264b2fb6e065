import subprocess
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
print(subprocess.run(["sh", "-c", "echo a shell; exit 3"], check=False).returncode, flush=True)
code = "import torch; x = torch.ones(3, requires_grad=True); x.exp().sum().backward(); print(x.grad.tolist())"
for command in ([sys.executable, "-c", code], [sys.executable, "-I", "-c", "print('isolated')"]):
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
for step in range(4):
    batch = torch.randn(64, 32, device="cuda")
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item().hex())
