# SPDX-License-Identifier: Apache-2.0
"""What cannot be given to `offload`, `keep_on_device` and `step_in_slices` is named, and nothing changes."""

import pytest

MODEL = """
import spillway, torch
from torch import nn
spillway.use_allocator()
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
stranger = torch.optim.SGD(nn.Linear(64, 64).cuda().parameters(), lr=1)
on_host = nn.Linear(64, 64)
on_cpu = torch.optim.SGD(on_host.parameters(), lr=1)
class Counts(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
class NoStep(torch.optim.Optimizer): ...
def train(kind):
    spillway.memory.step_in_slices(kind)
    spillway.offload(model, budget="1GiB")
    before = model.weight.detach().clone()
    steps = kind(model.parameters(), lr=0.1)
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    try:
        steps.step()
    finally:
        assert steps.param_groups[0]["params"] == list(model.parameters())
        assert model.weight.equal(before)
"""

REFUSED = {
    "spillway.offload(model, budget='1GiB', optimizer=3)": ("TypeError", "optimizer must be .*not 3"),
    "spillway.offload(model, budget='1GiB', optimizer=[])": ("TypeError", r"optimizer must be .*not \[\]"),
    "spillway.offload(budget='1GiB', optimizer=optimizer)": ("TypeError", "optimizer needs a model, "),
    "spillway.offload(print, budget='1GiB', optimizer=optimizer)": ("TypeError", "optimizer needs a model, "),
    "spillway.offload(model, budget='1GiB', optimizer=stranger)": (
        "ValueError",
        "optimizer: SGD steps no parameter of the model. Give the optimizer of this model",
    ),
    "spillway.offload(model, budget='1GiB', optimizer=[optimizer, stranger])": ("ValueError", "SGD steps no"),
    "spillway.offload(on_host, budget='1GiB', optimizer=on_cpu)": (
        "ValueError",
        "SGD steps no parameter on a GPU. Move the model to the GPU",
    ),
    "spillway.memory.keep_on_device(model, model.weight.data)": (
        "TypeError",
        "keep_on_device: each argument",
    ),
    "spillway.memory.step_in_slices(optimizer)": (
        "TypeError",
        "step_in_slices: optimizer must be a subclass",
    ),
    "spillway.memory.step_in_slices(nn.Linear)": (
        "TypeError",
        "step_in_slices: optimizer must be a subclass",
    ),
    "spillway.memory.step_in_slices(NoStep)": ("TypeError", "NoStep defines no step"),
    "spillway.memory.step_in_slices(torch.optim.LBFGS)": ("TypeError", "LBFGS: .*all parameters at once"),
    "train(Counts)": ("RuntimeError", "Counts: its step stores 'step' in its group"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_given_is_named(program, call):
    import re

    kind, text = REFUSED[call]
    found = program(
        f"""{MODEL}
try:
    {call}
    report(None)
except Exception as error:
    managed = spillway.stats()["model_state"]["classes"]["parameters"]["storages"]
    report([type(error).__name__, str(error), managed])
"""
    )
    assert found is not None
    assert found[0] == kind and re.search(text, found[1]), found
    assert (found[2] > 0) == (call == "train(Counts)")


def test_an_optimizer_needs_spillways_allocator(program):
    message = program(
        MODEL.replace("spillway.use_allocator()", "")
        + """
spillway.offload(model, budget="1GiB")
try:
    spillway.offload(model, budget="1GiB", optimizer=optimizer)
except RuntimeError as error:
    report(str(error))
"""
    )
    assert message.startswith("optimizer needs Spillway's allocator") and "use_allocator()" in message


def test_a_budget_that_the_heap_does_not_hold_manages_nothing(program):
    assert (
        program(
            MODEL
            + """
spillway.offload(model, budget="31MiB", over_budget="warn")
spillway.offload(model, time_limit=1.1)
model(torch.ones(2, 64, device="cuda")).sum().backward()
optimizer.step()
report(sum(each["storages"] for each in spillway.stats()["model_state"]["classes"].values()))
"""
        )
        == 0
    )
