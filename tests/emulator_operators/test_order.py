# SPDX-License-Identifier: Apache-2.0
"""The order checker hears of every operator: silent about ordered code, it names what is not ordered."""

import ctypes

import pytest
import torch
from emulated_models import GPT, fit_language_model

SIZE = 1 << 14


def reports():
    """What the checker has reported since the last call."""
    library = ctypes.CDLL(None)
    library.spillway_emulator_report.restype = ctypes.c_char_p
    kept = []
    while (text := library.spillway_emulator_report(ctypes.c_size_t(len(kept)))) is not None:
        kept.append(text.decode())
    library.spillway_emulator_clear_reports()
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


def write_in_place_what_a_side_stream_reads(wait):
    side = torch.cuda.Stream()
    staging = torch.zeros(SIZE, device="cuda")
    host = torch.ones(SIZE).pin_memory()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(staging, non_blocking=True)
    if wait:
        torch.cuda.current_stream().wait_stream(side)
    staging.add_(1)
    torch.cuda.synchronize()
    return reports()


def reuse_what_a_side_stream_reads(record):
    """The block of a freed tensor becomes an operator's result, while a copy out of it is under way."""
    side = torch.cuda.Stream()
    host = torch.empty(SIZE).pin_memory()
    other = torch.ones(SIZE, device="cuda")
    source = torch.ones(SIZE, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(source, non_blocking=True)
    if record:
        source.record_stream(side)
    address = source.data_ptr()
    del source
    result = other * 2
    torch.cuda.synchronize()
    return {"reused": result.data_ptr() == address, "reports": reports()}


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


def everything():
    """Every case of this file, in one process; each ends with the device idle."""
    return {
        "missing wait": use_what_a_side_stream_makes(wait=False),
        "wait": use_what_a_side_stream_makes(wait=True),
        "overwritten too early": overwrite_what_an_operator_reads(wait=False),
        "overwritten in order": overwrite_what_an_operator_reads(wait=True),
        "written in place too early": write_in_place_what_a_side_stream_reads(wait=False),
        "written in place in order": write_in_place_what_a_side_stream_reads(wait=True),
        "reused too early": reuse_what_a_side_stream_reads(record=False),
        "reused in order": reuse_what_a_side_stream_reads(record=True),
        "columns": two_streams_write_their_columns(),
        "indices": index_with_what_a_side_stream_makes(),
        "value read": wait_by_reading_a_value(),
        "training": train(),
    }


@pytest.fixture(scope="module")
def seen(elsewhere):
    return elsewhere(everything, check="1")


def test_a_missing_wait_is_reported(seen):
    (report,) = seen["missing wait"]
    assert report.startswith("spillway-check: unordered")
    assert "aten::mul.Tensor" in report
    assert "memcpy host to device" in report
    assert "read after write" in report


def test_a_wait_is_not_reported(seen):
    assert seen["wait"] == []


def test_overwriting_a_buffer_in_use_is_reported(seen):
    (report,) = seen["overwritten too early"]
    assert "aten::mul.Tensor" in report
    assert "write after read" in report


def test_overwriting_a_buffer_after_its_use_is_not_reported(seen):
    assert seen["overwritten in order"] == []


def test_writing_in_place_what_is_being_read_is_reported(seen):
    (report,) = seen["written in place too early"]
    assert "aten::add_.Tensor" in report
    assert "write after read" in report


def test_writing_in_place_after_the_read_is_not_reported(seen):
    assert seen["written in place in order"] == []


def test_reusing_a_block_too_early_is_reported(seen):
    assert seen["reused too early"]["reused"]
    (report,) = seen["reused too early"]["reports"]
    assert "aten::mul.Tensor" in report
    assert "write after read" in report


def test_what_the_allocator_learnt_inside_an_operator_counts(seen):
    # The allocator asks the recorded event during the operator and hears that the copy has passed.
    assert seen["reused in order"] == {"reused": True, "reports": []}


def test_interleaved_views_are_not_the_same_bytes(seen):
    assert seen["columns"] == []


def test_indices_are_read_too(seen):
    assert any("aten::index.Tensor" in report for report in seen["indices"])


def test_reading_a_value_orders_the_host(seen):
    assert seen["value read"] == []


def test_training_is_not_reported(seen):
    assert seen["training"] == []


def test_training_under_the_late_schedule_is_not_reported(elsewhere):
    assert elsewhere(train, check="1", schedule="late") == []
