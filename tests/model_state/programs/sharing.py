# SPDX-License-Identifier: Apache-2.0
"""A model that another process trains on, by CUDA IPC."""

import torch
import torch.multiprocessing as processes
from cases import case, main
from torch import nn


def inputs(*shape):
    return torch.randn(*shape).cuda()


def change(model, queue, done):
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(2)
    torch.cuda.synchronize()
    queue.put("changed")
    done.wait()


@case
def shared_with_a_child():
    model = nn.Sequential(nn.Linear(24, 2048, bias=False), nn.ReLU(), nn.Linear(2048, 24, bias=False)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = model(inputs(4, 24)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step()]
    model.share_memory()
    context = processes.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=change, args=(model, queue, done))
    child.start()
    assert queue.get() == "changed"
    losses.append(step())
    done.set()
    child.join()
    assert child.exitcode == 0
    losses.append(step())
    return losses, model, optimizer


if __name__ == "__main__":
    main()
