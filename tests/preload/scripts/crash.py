import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    batch = torch.randn(64, 32, device="cuda")
    loss = (model(batch) - batch).square().mean()
    if step == 3:
        raise RuntimeError(f"the data of step {step} cannot be read")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item().hex(), flush=True)
