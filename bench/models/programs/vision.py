# SPDX-License-Identifier: Apache-2.0
"""Image models, as torchvision, timm and diffusers have them, with random weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import diffusers
import timm
import torch
import torchvision
from job import Job
from torch import nn
from torch.nn import functional

LABELS = 1000


def classifier(
    model: nn.Module,
    blocks: Iterator[nn.Module],
    batch: int,
    pixels: int = 224,
    momentum: float | None = None,
) -> Job:
    channels_last = torch.channels_last

    def loss(model: nn.Module) -> torch.Tensor:
        dtype = next(model.parameters()).dtype
        images = torch.randn(batch, 3, pixels, pixels, device="cuda", dtype=dtype)
        labels = torch.randint(LABELS, (batch,), device="cuda")
        scores = model(images.to(memory_format=channels_last))
        return functional.cross_entropy(scores, labels)

    return Job(model.to(memory_format=channels_last), list(blocks), loss, momentum)


def in_stages(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks of timm's convolutional networks."""
    for stage in model.blocks if hasattr(model, "blocks") else model.stages:
        yield from getattr(stage, "blocks", stage)


def resnet50() -> Job:
    model = torchvision.models.resnet50()
    stages = (model.layer1, model.layer2, model.layer3, model.layer4)
    return classifier(model, (block for stage in stages for block in stage), 256, momentum=0.9)


def convnext() -> Job:
    model = timm.create_model("convnext_base", drop_path_rate=0.1)
    return classifier(model, in_stages(model), batch=128)


def efficientnet() -> Job:
    model = timm.create_model("efficientnet_b4", drop_rate=0.4, drop_path_rate=0.2)
    return classifier(model, in_stages(model), 128, pixels=320, momentum=0.9)


def swin() -> Job:
    model = timm.create_model("swin_base_patch4_window7_224")
    return classifier(model, (block for layer in model.layers for block in layer.blocks), batch=128)


def vit() -> Job:
    model = timm.create_model("vit_large_patch16_224")
    return classifier(model, iter(model.blocks), batch=128)


def unet() -> Job:
    """Stable Diffusion 1.5's denoiser."""
    model = diffusers.UNet2DConditionModel(sample_size=64, cross_attention_dim=768)
    batch, words = 16, 77

    def loss(model: nn.Module) -> torch.Tensor:
        dtype = next(model.parameters()).dtype
        noise = torch.randn(batch, 4, 64, 64, device="cuda", dtype=dtype)
        times = torch.randint(1000, (batch,), device="cuda")
        text = torch.randn(batch, words, 768, device="cuda", dtype=dtype)
        found = model(noise, times, encoder_hidden_states=text).sample
        return functional.mse_loss(found.float(), torch.randn_like(noise, dtype=torch.float32))

    blocks = [*model.down_blocks, model.mid_block, *model.up_blocks]
    parts = [
        part for block in blocks for part in (*block.resnets, *(getattr(block, "attentions", None) or []))
    ]
    return Job(model, parts, loss)


MODELS: dict[str, Callable[[], Job]] = {
    each.__name__: each for each in (resnet50, convnext, efficientnet, swin, vit, unet)
}
