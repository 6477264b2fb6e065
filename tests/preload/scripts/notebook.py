"""Runs cells in a kernel, as a notebook does."""

from jupyter_client.manager import KernelManager

CELLS = (
    "import torch; from torch import nn; _ = torch.manual_seed(0)",
    "model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).cuda()",
    "optimizer = torch.optim.AdamW(model.parameters())",
    "for step in range(4):\n"
    "    batch = torch.randn(64, 32, device='cuda')\n"
    "    loss = (model(batch) - batch).square().mean()\n"
    "    loss.backward(); optimizer.step(); optimizer.zero_grad()\n"
    "    print(step, loss.item().hex())",
    "loss",  # the last cell's result stays alive in the notebook's history
    "raise ValueError('a mistake in a cell')",
    "model(batch).sum().backward(); print(model[0].weight.grad.sum().item().hex())",
)


def show(message):
    content = message["content"]
    if message["header"]["msg_type"] == "stream":
        print(content["text"], end="")
    elif message["header"]["msg_type"] == "execute_result":
        print(content["data"]["text/plain"])
    elif message["header"]["msg_type"] == "error":
        print(content["ename"], content["evalue"])


manager = KernelManager(transport="ipc")  # ports may be taken by others
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=120)
    for cell in CELLS:
        client.execute_interactive(cell, output_hook=show, timeout=120)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
