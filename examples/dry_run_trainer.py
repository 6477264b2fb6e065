# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a Llama of 1.2 billion parameters with transformers' Trainer, on random weights and tokens.

This script does not use Spillway. On any machine a dry run predicts what it needs on a GPU:

    spillway dry-run h200 -- python examples/dry_run_trainer.py
"""

import argparse
import tempfile

import torch
import transformers

LENGTH, BATCH = 2048, 4


class Tokens(torch.utils.data.Dataset):
    def __init__(self, words, rows):
        self.words, self.rows = words, rows

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        tokens = torch.randint(self.words, (LENGTH,), generator=torch.Generator().manual_seed(row))
        return {"input_ids": tokens, "labels": tokens}


def llama():
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--checkpoint", action="store_true", help="gradient checkpointing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=BATCH, max_steps=options.steps, bf16=True,
            gradient_checkpointing=options.checkpoint, optim="adamw_torch_fused", logging_steps=1,
            report_to="none", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        model = llama()
        data = Tokens(model.config.vocab_size, BATCH * options.steps)
        transformers.Trainer(model=model, args=settings, train_dataset=data).train()
    count = sum(each.numel() for each in model.parameters())
    print(f"{count / 1e9:.2f} billion parameters, peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


main()
