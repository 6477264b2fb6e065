# SPDX-License-Identifier: Apache-2.0
"""The order checker hears of every operator: silent about ordered code, it names what is not ordered."""

import ctypes

import pytest
import torch
from emulated_models import GPT, fit_language_model

SIZE = 1 << 14


def reports():
    library = ctypes.CDLL(None)
    library.spillway_emulator_report.restype = ctypes.c_char_p
    kept = []
    while (text := library.spillway_emulator_report(ctypes.c_size_t(len(kept)))) is not None:
        kept.append(text.decode())
    return kept


def use_what_a_side_stream_makes(wait):
    side = torch.cuda.Stream()
    host = torch.ones(SIZE).pin_memory()
    with torch.cuda.stream(side):
        arrived = host.to("cuda", non_blocking=True)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    doubled = arrived * 2
    arrived.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    return reports() if doubled.numel() else []


def overwrite_what_an_operator_reads(wait):
    side = torch.cuda.Stream()
    staging = torch.zeros(SIZE, device="cuda")
    host = torch.ones(SIZE).pin_memory()
    torch.cuda.synchronize()
    outputs = staging * 2
    if wait:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        staging.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    return reports() if outputs.numel() else []


def reuse_what_a_side_stream_reads(record):
    """The block of a freed tensor is the next tensor's, while a copy out of it is under way."""
    side = torch.cuda.Stream()
    host = torch.empty(SIZE).pin_memory()
    source = torch.ones(SIZE, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(source, non_blocking=True)
    if record:
        source.record_stream(side)
    del source
    torch.zeros(SIZE, device="cuda")
    torch.cuda.synchronize()
    return reports()


def two_streams_write_their_columns():
    both = torch.zeros(16, 32, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    both[:, :16].add_(1)
    with torch.cuda.stream(side):
        both[:, 16:].add_(1)
    torch.cuda.synchronize()
    return reports()


def index_with_what_a_side_stream_makes():
    table = torch.arange(8.0, device="cuda")
    host = torch.ones(SIZE, dtype=torch.long).pin_memory()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        index = host.to("cuda", non_blocking=True)
    table[index]
    torch.cuda.synchronize()
    return reports()


def wait_by_reading_a_value():
    """An operator whose result depends on values makes the host wait for its stream, as on a GPU."""
    flags = torch.ones(SIZE, device="cuda")
    staging = torch.zeros(SIZE, device="cuda")
    host = torch.ones(SIZE).pin_memory()
    side = torch.cuda.Stream()
    staging.add_(1)
    flags.nonzero()
    with torch.cuda.stream(side):
        staging.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    return reports()


def train():
    fit_language_model(GPT, "cuda")
    return reports()


def test_a_missing_wait_is_reported(elsewhere):
    (report,) = elsewhere(use_what_a_side_stream_makes, False, check="1")
    assert report.startswith("spillway-check: unordered")
    assert "aten::mul.Tensor" in report
    assert "memcpy host to device" in report
    assert "read after write" in report


def test_a_wait_is_not_reported(elsewhere):
    assert elsewhere(use_what_a_side_stream_makes, True, check="1") == []


def test_overwriting_a_buffer_in_use_is_reported(elsewhere):
    (report,) = elsewhere(overwrite_what_an_operator_reads, False, check="1")
    assert "aten::mul.Tensor" in report
    assert "write after read" in report


def test_overwriting_a_buffer_after_its_use_is_not_reported(elsewhere):
    assert elsewhere(overwrite_what_an_operator_reads, True, check="1") == []


def test_reusing_a_block_too_early_is_reported(elsewhere):
    reported = elsewhere(reuse_what_a_side_stream_reads, False, check="1")
    assert any("aten::" in report and "write after read" in report for report in reported)


def test_a_recorded_stream_is_not_reported(elsewhere):
    assert elsewhere(reuse_what_a_side_stream_reads, True, check="1") == []


def test_interleaved_views_are_not_the_same_bytes(elsewhere):
    assert elsewhere(two_streams_write_their_columns, check="1") == []


def test_indices_are_read_too(elsewhere):
    reported = elsewhere(index_with_what_a_side_stream_makes, check="1")
    assert any("aten::index.Tensor" in report for report in reported)


def test_reading_a_value_orders_the_host(elsewhere):
    assert elsewhere(wait_by_reading_a_value, check="1") == []


@pytest.mark.parametrize("schedule", ["eager", "late"])
def test_training_is_not_reported(elsewhere, schedule):
    assert elsewhere(train, check="1", schedule=schedule) == []
