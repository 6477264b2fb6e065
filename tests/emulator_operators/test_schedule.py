# SPDX-License-Identifier: Apache-2.0
"""Under the late schedule correct programs give the same bits, and a forgotten wait gives wrong ones."""

import torch
from emulated_models import GPT, fingerprint, fit_language_model


def train():
    return fit_language_model(GPT, "cuda")


def test_training_gives_the_same_bits(under_schedules):
    expected = train()
    assert set(map(tuple, under_schedules(train, seeds=1).values())) == {tuple(expected)}


def are_fetched(wait):
    side = torch.cuda.Stream()
    host = torch.arange(4096.0).pin_memory()
    with torch.cuda.stream(side):
        arrived = torch.zeros(4096, device="cuda")
        arrived.copy_(host, non_blocking=True)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    return fingerprint([arrived + 1])


def test_a_wait_brings_the_data(elsewhere):
    assert elsewhere(are_fetched, True, schedule="late") == fingerprint([torch.arange(4096.0) + 1])


def test_without_a_wait_the_data_is_not_there(elsewhere):
    assert elsewhere(are_fetched, False, schedule="late") != fingerprint([torch.arange(4096.0) + 1])
