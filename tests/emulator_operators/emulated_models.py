# SPDX-License-Identifier: Apache-2.0
"""Small models, and a training loop whose losses and parameters can be compared bit for bit."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 61
LENGTH = 16


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place(places))))


class Encoder(nn.Module):
    def __init__(self, width=32, dropout=0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=dropout, batch_first=True)
        self.token = nn.Embedding(VOCABULARY, width)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.encoder(self.token(tokens), mask=mask, is_causal=True))


class ConvNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )


def fit(model, optimizer, loss_of, steps=5):
    """Trains; gives the losses as exact numbers and a fingerprint of every parameter and buffer."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": fingerprint(model.state_dict().values())}


def fingerprint(tensors):
    """The bytes of the tensors, as text: equal texts are equal bits."""
    return [bytes(t.detach().cpu().contiguous().flatten().view(torch.uint8).tolist()).hex() for t in tensors]


def fit_language_model(model, device, **adamw):
    torch.manual_seed(0)
    model = model().to(device)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=generator).to(device)

    def loss_of(model):
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return fit(model, torch.optim.AdamW(model.parameters(), lr=3e-3, **adamw), loss_of)
