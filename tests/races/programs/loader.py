# SPDX-License-Identifier: Apache-2.0
"""Trains on what a DataLoader with workers and a pinning thread brings."""

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.full((256,), index / 48), torch.tensor([index / 48])


def main():
    model = torch.nn.Linear(256, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in DataLoader(Numbers(), batch_size=4, pin_memory=True, num_workers=2):
        assert inputs.is_pinned()
        loss = (model(inputs.cuda(non_blocking=True)) - targets.cuda(non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() >= 0


if __name__ == "__main__":
    main()
