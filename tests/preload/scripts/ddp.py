import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 32)
).cuda()
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)
for step in range(4):
    batch = torch.randn(64, 32, device="cuda")
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(step, mean.item().hex(), flush=True)
# The autograd thread keeps Python objects of a backward pass until it has another one, and at the
# interpreter's end may be too late to let them go.
torch.ones(1, device="cuda", requires_grad=True).sin().sum().backward()
dist.destroy_process_group()
