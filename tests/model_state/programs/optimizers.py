# SPDX-License-Identifier: Apache-2.0
"""A few steps with the optimizers and options that the command line names (optimizer_cases.py); `pairwise`
and `product` name many."""

import contextlib
import sys

import cases
import optimizer_cases
import torch
from torch import nn

STEPS = 4
# Options of the optimizers' own, which lead to other kernels or more states.
EXTRA = {
    "ASGD": {"t0": 1.0},
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"amsgrad": True},
    "LBFGS": {"line_search_fn": "strong_wolfe"},
    "Muon": {"nesterov": False},
    "NAdam": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "RAdam": {"weight_decay": 0.1},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "SGD": {"momentum": 0.9, "nesterov": True},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 24)
        self.conv = nn.Conv1d(24, 24, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(24)
        self.hidden = nn.Linear(24, 40)
        self.out = nn.Linear(40, 24, bias=False)
        self.new = nn.Linear(24, 24)  # trained from the middle of the run on

    def forward(self, tokens):
        hidden = self.batch_norm(self.conv(self.embedding(tokens).transpose(1, 2))).transpose(1, 2)
        return self.new(self.out(self.hidden(hidden).relu())) @ self.embedding.weight.T


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 24, sparse=True)
        self.new = nn.Embedding(64, 24, sparse=True)

    def forward(self, tokens):
        return self.embedding(tokens) @ self.new(torch.arange(32, device="cuda")).T


class Training:
    def __init__(self, name, implementation, options):
        self.options = options
        self.model = (Sparse() if name == "SparseAdam" else Net()).to("cuda")
        trained = list(self.model.parameters())
        if name == "Muon":
            trained = [each for each in trained if each.ndim == 2]
        self.later = [each for each in self.model.new.parameters() if any(each is other for other in trained)]
        if "add_group" in options:
            trained = [each for each in trained if not any(each is other for other in self.later)]
        self.trained = trained
        self.optimizer = getattr(torch.optim, name)(self._groups(), **self._arguments(name, implementation))
        self.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12, enabled="scaler" in options)
        self.scheduler = None
        if "scheduler" in options:
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)

    def _groups(self):
        if "groups" not in self.options:
            return self.trained
        return [{"params": self.trained[:2], "lr": 0.005}, {"params": self.trained[2:]}]

    def _arguments(self, name, implementation):
        arguments = {"lr": 0.01}
        if "tensor_lr" in self.options:
            arguments["lr"] = torch.tensor(
                0.01, device="cuda" if implementation in ("capturable", "fused") else "cpu"
            )
        if "maximize" in self.options:
            arguments["maximize"] = True
        if "extra" in self.options:
            arguments |= EXTRA.get(name, {})
        if implementation == "for_loop" and name not in ("LBFGS", "Muon", "SparseAdam"):
            arguments["foreach"] = False
        elif implementation != "for_loop":
            arguments[implementation] = True
        return arguments

    def loss(self):
        tokens = torch.randint(0, 32, (4, 6)).cuda()
        with torch.autocast("cuda", torch.float16) if self.scaler.is_enabled() else contextlib.nullcontext():
            logits = self.model(tokens)
            return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())

    def backward(self):
        self.optimizer.zero_grad(set_to_none="keep_zeros" not in self.options)
        total = 0.0
        for _ in range(2 if "accumulate" in self.options else 1):
            loss = self.loss()
            self.scaler.scale(loss).backward()
            total += loss.item()
        if "clip" in self.options:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        return total

    def step(self, number):
        if number == STEPS // 2 and "add_group" in self.options:
            self.optimizer.add_param_group({"params": self.later})
        if "closure" in self.options:
            return float(self.optimizer.step(torch.enable_grad()(self.backward)))
        loss = self.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def run(case):
    name, implementation, options = case.split(".")
    training = Training(name, implementation, options.split("+"))
    losses = []
    for number in range(STEPS):
        losses.append(training.step(number))
        if training.scheduler:
            training.scheduler.step()
    return losses, training.model, training.optimizer


def main():
    many = {"pairwise": optimizer_cases.pairwise, "product": optimizer_cases.product}
    for argument in sys.argv[1:]:
        for case in many.get(argument, lambda one=argument: [one])():
            cases.run(case, lambda case=case: run(case))
    if stats := cases.managed_stats():
        print("overlapped:", stats["overlapped_slices"], file=sys.stderr)


main()
