import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 64), nn.LSTM(64, 64, batch_first=True)).cuda()
head = nn.Linear(64, 50).cuda()
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
for step in range(4):
    total = 0.0
    for _ in range(3):
        words = torch.randint(50, (8, 17), device="cuda")
        states, _ = model(words[:, :-1])
        loss = nn.functional.cross_entropy(head(states).flatten(0, 1), words[:, 1:].flatten()) / 3
        loss.backward()
        total += loss.item()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    print(step, total.hex())
