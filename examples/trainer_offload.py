# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny random model with a trainer whose activations wait in host memory.

A loop of a few lines comes first, then transformers' own trainer, with `pip install transformers accelerate`,
and TRL's for supervised fine-tuning, with `pip install trl datasets` as well.
"""

import importlib.util
import os
import tempfile
import types

import spillway
import torch
from torch import nn

spillway.use_allocator()  # before CUDA starts: freed blocks are reused while their copy still runs

WORDS, LENGTH, STEPS = 96, 64, 4


def offloaded():
    devices = spillway.stats()["devices"]
    return devices[0]["residency"]["stashed_bytes"] if devices else 0


def importable(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped, because these packages are missing: {', '.join(missing)}")
    return not missing


def examples():
    torch.manual_seed(0)
    rows = torch.randint(WORDS, (2 * STEPS, LENGTH))
    return [{"input_ids": row, "labels": row} for row in rows]


def tiny_llama():
    import transformers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def with_transformers(folder):
    import transformers

    class OffloadingTrainer(spillway.compat.ActivationOffloadingMixin, transformers.Trainer):
        pass

    args = transformers.TrainingArguments(
        output_dir=folder, per_device_train_batch_size=2, max_steps=STEPS, report_to="none",
        save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    OffloadingTrainer(model=tiny_llama(), args=args, train_dataset=examples()).train()


def with_trl(folder):
    import datasets
    import pyarrow
    import tokenizers
    import transformers
    import trl
    from trl.kernels import chunked_logprob

    if os.environ.get("SPILLWAY_EMULATE") == "1":
        chunked_logprob._TRITON_AVAILABLE = False  # the emulated GPU runs no triton, and TRL does without

    class OffloadingTrainer(spillway.compat.ActivationOffloadingMixin, trl.SFTTrainer):
        pass

    words = tokenizers.models.WordLevel({str(number): number for number in range(WORDS)}, unk_token="0")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), pad_token="0", eos_token="1"
    )
    table = pyarrow.table({"input_ids": [row["input_ids"].tolist() for row in examples()]})
    args = trl.SFTConfig(
        output_dir=folder, per_device_train_batch_size=2, max_steps=STEPS, report_to="none",
        save_strategy="no", logging_steps=1, disable_tqdm=True, bf16=False, gradient_checkpointing=False,
        dataset_kwargs={"skip_prepare_dataset": True}, activation_offloading=True,
    )  # fmt: skip
    OffloadingTrainer(
        model=tiny_llama(),
        args=args,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="tiny"),
    ).train()


class Loop:
    """What a trainer class needs for the mixin: `model`, `args` and `training_step`."""

    def __init__(self, model, args):
        self.model, self.args = model.cuda(), args
        self.optimizer = torch.optim.AdamW(model.parameters())

    def training_step(self, model, inputs):
        loss = nn.functional.cross_entropy(model(inputs["input_ids"].cuda()), inputs["labels"].cuda())
        loss.backward()
        return loss.detach()

    def train(self, rows):
        for row in rows:
            loss = self.training_step(self.model, row)
            self.optimizer.step()
            self.optimizer.zero_grad()
        print(f"loss {loss.item():.4f}")


class OffloadingLoop(spillway.compat.ActivationOffloadingMixin, Loop):
    pass


class TinyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 64)
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)])
        self.lm_head = nn.Linear(64, WORDS)

    def forward(self, ids):
        return self.lm_head(self.blocks(self.embedding(ids)))


OffloadingLoop(TinyModel(), types.SimpleNamespace(activation_offloading=True)).train(examples())
print(f"a loop: {offloaded()} bytes offloaded")
with tempfile.TemporaryDirectory() as scratch:
    if importable("transformers", "accelerate"):
        before = offloaded()
        with_transformers(scratch)
        print(f"transformers.Trainer: {offloaded() - before} bytes offloaded")
    if importable("trl", "datasets"):
        before = offloaded()
        with_trl(scratch)
        print(f"trl.SFTTrainer: {offloaded() - before} bytes offloaded")
