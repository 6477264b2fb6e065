import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static = torch.zeros(64, 32, device="cuda")


def train():
    loss = (model(static) - static).square().mean()
    loss.backward()
    return loss


# Whole steps on a side stream, then one captured, then replays.
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for step in range(3):
        static.copy_(torch.randn(64, 32, device="cuda"))
        loss = train()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print("warm-up", step, loss.item().hex())
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = train()
    optimizer.step()
for step in range(3):
    static.copy_(torch.randn(64, 32, device="cuda"))
    for parameter in model.parameters():
        parameter.grad.zero_()
    graph.replay()
    print("replay", step, loss.item().hex())
