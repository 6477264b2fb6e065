import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.full((32,), float(index))
        return x.sin(), x.square().cos()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for context in ("fork", "spawn"):
        loader = DataLoader(
            Squares(),
            batch_size=16,
            shuffle=True,
            num_workers=2,
            pin_memory=True,
            multiprocessing_context=context,
        )
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(context, step, loss.item().hex())
