import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda().eval()
for number in range(3):
    batch = torch.randn(64, 32, device="cuda")
    with torch.inference_mode():
        print(number, model(batch).sum().item().hex())
    with torch.no_grad():
        print(number, model(batch).sum().item().hex())
