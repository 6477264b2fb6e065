# SPDX-License-Identifier: Apache-2.0
"""A model of transformers that is larger than the budget: loaded, trained, asked and saved."""

import hashlib
import pathlib
import sys
import tempfile

import torch
from cases import case, main
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16}


@case
def a_pretrained_model_larger_than_the_budget():
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(vocab_size=4096, **SHAPE)).save_pretrained(folder)
        model = LlamaForCausalLM.from_pretrained(folder, device_map="cuda")
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(2):
            tokens = torch.randint(0, 4096, (1, 16)).cuda()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        answer = model.eval().generate(tokens[:, :4], max_new_tokens=2, do_sample=False)
        model.save_pretrained(folder)
        file = hashlib.sha256(pathlib.Path(folder, "model.safetensors").read_bytes()).digest()
        return losses, answer, torch.frombuffer(bytearray(file), dtype=torch.uint8)


@case
def a_file_of_weights_larger_than_the_budget():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "weights.safetensors")
        save_file({f"{i}.weight": torch.randn(1024, 1024) for i in range(40)}, path)
        model = torch.nn.Sequential(
            *(torch.nn.Linear(1024, 1024, bias=False, device="meta") for _ in range(40))
        )
        model.load_state_dict(load_file(path, device="cuda"), assign=True)
        with safe_open(path, "pt", device="cuda") as file:
            first = file.get_tensor("0.weight")
        return model(torch.randn(2, 1024).cuda()), first, model


@case
def a_model_that_safetensors_loads():
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16))).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(3):
            loss = model(torch.randn(4, 1024).cuda()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if step == 0:
                save_model(model, f"{folder}/model.safetensors")
            else:
                load_model(model, f"{folder}/model.safetensors", device="cuda")
    return losses, model, optimizer


main()
print("reserved:", torch.cuda.max_memory_reserved(), file=sys.stderr)
