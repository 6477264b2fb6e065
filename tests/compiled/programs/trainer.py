# SPDX-License-Identifier: Apache-2.0
"""Trains a language model by `transformers.Trainer`, eagerly and with `torch_compile=True`. Prints a JSON
object for both, as training.py does."""

import json
import tempfile

import torch
from measured import begin, counted, hash_of
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

STEPS = 3


class Watched(TrainerCallback):
    """Losses, and the peak of the last step."""

    def __init__(self):
        self.losses, self.peak = [], 0

    def on_step_begin(self, *_, **__):
        torch.cuda.reset_peak_memory_stats()

    def on_step_end(self, *_, **__):
        self.peak = torch.cuda.max_memory_allocated()

    def on_log(self, *_, logs=None, **__):
        if "loss" in logs:
            self.losses.append(torch.tensor(logs["loss"], dtype=torch.float64))


def trained(compiled):
    config = LlamaConfig(
        vocab_size=256, hidden_size=256, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=4
    )
    model, tokens = LlamaForCausalLM(config), torch.randint(256, (8 * STEPS, 128))
    watched = Watched()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            torch_compile=compiled,
            per_device_train_batch_size=8,
            max_steps=STEPS,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            log_level="error",
        )
        data = [{"input_ids": each, "labels": each} for each in tokens]
        trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[watched])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return {"hash": hash_of(watched.losses, model), "peak": watched.peak}


for name in ("eager", "compiled"):
    begin()
    print(json.dumps({"case": name, **trained(name == "compiled"), **counted()}), flush=True)
