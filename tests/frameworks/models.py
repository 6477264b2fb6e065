# SPDX-License-Identifier: Apache-2.0
"""Small models of common kinds. Each `fit_…(device)` trains one and returns its results."""

import torch
import torch.nn.functional as F
from torch import nn
from training import random, train

VOCABULARY = 61


class Attention(nn.Module):
    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, causal):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        # Written out: fused attention draws its dropout inside the kernel, in an order of the device's own.
        scores = heads[0] @ heads[1].transpose(-2, -1) * (width // self.heads) ** -0.5
        if causal:
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        return self.out((weights @ heads[2]).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x), causal=True)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=32, length=16, dropout=0.1):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4, dropout) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place(places))))


def fit_gpt(device):
    torch.manual_seed(0)
    model = GPT().to(device)

    def loss_of(model, step):
        tokens = random(4, 17, seed=step, below=VOCABULARY).to(device)
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(classes=10):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            width = 64 * 2**stage
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def fit_resnet50(device):
    torch.manual_seed(0)
    model = resnet50().to(device, memory_format=torch.channels_last)

    def loss_of(model, step):
        images = random(4, 3, 32, 32, seed=step).to(device, memory_format=torch.channels_last)
        labels = random(4, seed=step, below=10).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(images)
        # In float32 by hand: autocast does this for the loss on CUDA only.
        return F.cross_entropy(scores.float(), labels)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return train(model, optimizer, loss_of)


class Tagger(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        # Without biases: the CPU adds them inside its products, the fused cells after: another rounding.
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True, dropout=0.1, bias=False)
        self.head = nn.Linear(2 * width, VOCABULARY)

    def forward(self, tokens):
        x = self.token(tokens)
        return self.head(self.lstm(x)[0] if x.is_cuda else self.cell_by_cell(x))

    def cell_by_cell(self, x):
        """What nn.LSTM does on CUDA. On the CPU it multiplies all steps of the input at once, and so adds up
        the gradient of those weights in another order."""
        x = x.transpose(0, 1)
        for layer in range(self.lstm.num_layers):
            if layer > 0:
                x = F.dropout(x, self.lstm.dropout, self.training)
            forward = self.direction(x, f"l{layer}")
            backward = self.direction(x.flip(0), f"l{layer}_reverse").flip(0)
            x = torch.cat([forward, backward], -1)
        return x.transpose(0, 1)

    def direction(self, x, name):
        weights = getattr(self.lstm, f"weight_ih_{name}"), getattr(self.lstm, f"weight_hh_{name}")
        hidden = cell = x.new_zeros(x.shape[1], self.lstm.hidden_size)
        states = []
        for step in x.unbind(0):
            hidden, cell = torch.lstm_cell(step, (hidden, cell), *weights)
            states.append(hidden)
        return torch.stack(states)


def fit_lstm(device):
    torch.manual_seed(0)
    model = Tagger().to(device)

    def loss_of(model, step):
        tokens = random(4, 12, seed=step, below=VOCABULARY).to(device)
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flip(1).flatten())

    return train(model, torch.optim.Adam(model.parameters(), lr=1e-2), loss_of)


class LoRA(nn.Module):
    """A frozen layer and a trained product of two thin matrices beside it."""

    def __init__(self, frozen, rank=4, scale=2.0, dropout=0.05):
        super().__init__()
        self.frozen, self.scale, self.dropout = frozen.requires_grad_(False), scale, nn.Dropout(dropout)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(self.dropout(x))) * self.scale


def tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            attn_implementation="eager",  # as in Attention above
        )
    )


def fit_lora(device):
    torch.manual_seed(0)
    model = tiny_llama().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = LoRA(layer.self_attn.q_proj)
        layer.self_attn.v_proj = LoRA(layer.self_attn.v_proj)
    model = model.to(device).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def loss_of(model, step):
        tokens = random(4, 16, seed=step, below=VOCABULARY).to(device)
        return model(input_ids=tokens, labels=tokens).loss

    return train(model, torch.optim.AdamW(trained, lr=1e-2), loss_of)


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.entry = nn.Conv2d(3, width, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, 2 * width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.attention = Attention(2 * width, 4)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.exit = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, x):
        wide = F.silu(self.norm1(self.entry(x)))
        deep = F.silu(self.norm2(self.down(wide)))
        tokens = deep.flatten(2).transpose(1, 2)
        deep = deep + self.attention(tokens, causal=False).transpose(1, 2).view_as(deep)
        up = self.up(deep) + F.interpolate(deep[:, :16], scale_factor=2, mode="nearest")
        up = up + F.interpolate(deep[:, 16:], scale_factor=2, mode="bilinear", align_corners=False)
        return self.exit(torch.cat([up, wide], 1))


def fit_unet(device):
    torch.manual_seed(0)
    model = UNet().to(device)

    def loss_of(model, step):
        images = random(2, 3, 16, 16, seed=step).to(device)
        return F.mse_loss(model(images + torch.randn_like(images)), images)

    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss_of)
