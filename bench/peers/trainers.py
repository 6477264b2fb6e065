# SPDX-License-Identifier: Apache-2.0
"""How each system trains the model: what a script replaces to use it, as the system's documentation shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from spillway.emulator import is_dry_run
from torch import nn

from bench.peers.host import NoAdam
from bench.peers.llama import Llama

LR = 1e-3
DECAY = 0.01
CLIP = 0.5


def no_call() -> None:
    """What most systems need after a step."""


@dataclass
class Trainer:
    """What stands in a script in place of plain PyTorch's calls. `parameters`: the final ones, whole."""

    model: Callable[[torch.Tensor], torch.Tensor]
    optimizer: Any
    module: nn.Module
    step: Callable[[], object]
    backward: Callable[[torch.Tensor], object] = lambda loss: loss.backward()
    zero_grad: Callable[[], object] = no_call
    parameters: Callable[[], Iterable[torch.Tensor]] | None = None
    #: Its own way to do what the script asks for; the script's own line is then left out.
    own: frozenset[str] = frozenset()
    #: The script calls `step` after each micro-batch.
    each_micro_batch: bool = False
    scheduler: Any = None

    def finals(self) -> Iterator[torch.Tensor]:
        return iter(self.parameters() if self.parameters else self.module.parameters())


@dataclass(frozen=True)
class Asked:
    """What the script does beside plain steps. `own`: by the system's own option where it has one."""

    clip: bool = False
    micro_batches: int = 1
    schedule: bool = False
    own: bool = False
    #: The host's, in a dry run.
    rate: float = 0.0


def factor(step: int) -> float:
    """The learning rate's, by step."""
    return 1 / (1 + step)


def by(model: nn.Module, optimizer: Any, **more: Any) -> Trainer:
    return Trainer(model, optimizer, model, optimizer.step, zero_grad=optimizer.zero_grad, **more)


def plain(model: Llama, asked: Asked) -> Trainer:
    model = model.cuda()
    return by(model, torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY))


def fused(model: Llama, asked: Asked) -> Trainer:
    model = model.cuda()
    return by(model, torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY, fused=True))


def torchao(model: Llama, asked: Asked, gradients: bool = False) -> Trainer:
    from torchao.optim import CPUOffloadOptimizer

    model = model.cuda()
    optimizer = CPUOffloadOptimizer(
        model.parameters(), torch.optim.AdamW, offload_gradients=gradients, lr=LR, weight_decay=DECAY
    )
    return by(model, optimizer)


def torchao_gradients(model: Llama, asked: Asked) -> Trainer:
    return torchao(model, asked, gradients=True)


def one_rank() -> None:
    """The environment that a launcher gives a job of one process."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
    }


def fsdp2(model: Llama, asked: Asked) -> Trainer:
    from torch import distributed
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    one_rank()
    distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    for part in (*model.blocks, model):
        fully_shard(part, offload_policy=CPUOffloadPolicy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    return by(model, optimizer, parameters=lambda: (each.to_local() for each in model.parameters()))


def deepspeed(model: Llama, asked: Asked, zero: dict[str, Any]) -> Trainer:
    """bfloat16 masters, gradients and states, as plain PyTorch's."""
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    one_rank()
    from torch import distributed

    distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    own = set()
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        "zero_optimization": zero,
    }
    if asked.own and asked.clip:
        config["gradient_clipping"] = CLIP
        own.add("clip")
    if asked.own and asked.micro_batches > 1:
        config["gradient_accumulation_steps"] = asked.micro_batches
        own.add("accumulate")
    scheduler = None
    if asked.own and asked.schedule:
        scheduler = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=factor)
        own.add("schedule")
    optimizer = DeepSpeedCPUAdam(model.parameters(), lr=LR, weight_decay=DECAY, fp32_optimizer_states=False)
    if is_dry_run():
        optimizer.ds_opt_adam = NoAdam(asked.rate)
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, lr_scheduler=scheduler
    )

    def finals() -> Iterator[torch.Tensor]:
        for each in model.parameters():
            with deepspeed.zero.GatheredParameters([each]):
                yield each.detach().clone()

    return Trainer(
        engine,
        optimizer,
        model,
        engine.step,
        engine.backward,
        parameters=finals,
        own=frozenset(own),
        each_micro_batch="accumulate" in own,
    )


ON_HOST = {"device": "cpu", "pin_memory": True}


def zero_offload(model: Llama, asked: Asked) -> Trainer:
    return deepspeed(model, asked, {"stage": 2, "offload_optimizer": ON_HOST})


def zero_infinity(model: Llama, asked: Asked) -> Trainer:
    zero = {"stage": 3, "offload_optimizer": ON_HOST, "offload_param": ON_HOST}
    return deepspeed(model, asked, zero)


def bitsandbytes(model: Llama, asked: Asked, bits: int = 32) -> Trainer:
    from bitsandbytes import optim

    model = model.cuda()
    of = optim.PagedAdamW32bit if bits == 32 else optim.PagedAdamW8bit
    return by(model, of(model.parameters(), lr=LR, weight_decay=DECAY))


def bitsandbytes_8bit(model: Llama, asked: Asked) -> Trainer:
    return bitsandbytes(model, asked, 8)


def accelerate_hooks(model: Llama, asked: Asked) -> Trainer:
    """Weights on the host, each module's on the GPU during its own forward pass."""
    from accelerate import cpu_offload
    from accelerate.hooks import remove_hook_from_submodules

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    model = cpu_offload(model, torch.device("cuda"))

    def finals() -> Iterable[torch.Tensor]:
        remove_hook_from_submodules(model)  # which puts the weights back
        return model.parameters()

    return by(model, optimizer, parameters=finals)


def accelerate_whole(model: Llama, asked: Asked) -> Trainer:
    """The whole model on the GPU from its forward pass until the script offloads it before the step."""
    from accelerate import cpu_offload_with_hook

    model, hook = cpu_offload_with_hook(model, torch.device("cuda"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)

    def step() -> None:
        hook.offload()
        optimizer.step()

    return Trainer(model, optimizer, model, step, zero_grad=optimizer.zero_grad)


TRAINERS: dict[str, Callable[[Llama, Asked], Trainer]] = {
    "plain": plain,
    "fused": fused,
    "torchao": torchao,
    "torchao-gradients": torchao_gradients,
    "zero-offload": zero_offload,
    "zero-infinity": zero_infinity,
    "fsdp2": fsdp2,
    "bitsandbytes": bitsandbytes,
    "bitsandbytes-8bit": bitsandbytes_8bit,
    "accelerate-hooks": accelerate_hooks,
    "accelerate-whole": accelerate_whole,
}
