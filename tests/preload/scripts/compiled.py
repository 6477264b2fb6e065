import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.compile(
            nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)), backend="aot_eager"
        )
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x):
        return self.mlp(x + self.body(x))


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    batch = torch.randn(64, 32, device="cuda")
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item().hex())
