# SPDX-License-Identifier: Apache-2.0
"""The order checker hears of every operator: silent about ordered code, it names what is not ordered."""

import ctypes

import pytest
import spillway
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


def many_rows_of_interleaved_columns():
    """More rows than could be told apart one by one."""
    both = torch.zeros(1 << 14, 8, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    both[:, :4].add_(1)
    with torch.cuda.stream(side):
        both[:, 4:].add_(1)
    apart = reports()
    with torch.cuda.stream(side):
        both[:, 3:5].add_(1)
    torch.cuda.synchronize()
    return {"apart": apart, "overlapping": reports()}


def work_in_lists(wait):
    side = torch.cuda.Stream()
    first, second = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    torch._foreach_add_([first, second], 1)
    if wait:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = second * 2
    torch.cuda.synchronize()
    return reports() if total.numel() else []


def running_statistics():
    """Batch norm writes them, whatever its schema says."""
    side = torch.cuda.Stream()
    norm = torch.nn.BatchNorm1d(8).cuda()
    inputs = torch.ones(4, 8, device="cuda")
    torch.cuda.synchronize()
    norm(inputs)
    with torch.cuda.stream(side):
        norm.running_mean * 2
    torch.cuda.synchronize()
    return reports()


def host_reads(wait, read):
    host = torch.empty(SIZE).pin_memory()
    host.copy_(torch.ones(SIZE, device="cuda"), non_blocking=True)
    if wait:
        torch.cuda.synchronize()
    read(host)
    torch.cuda.synchronize()
    return reports()


def host_writes(wait):
    host = torch.ones(SIZE).pin_memory()
    torch.cuda.synchronize()
    arrived = host.to("cuda", non_blocking=True)
    if wait:
        torch.cuda.synchronize()
    host.fill_(2)
    torch.cuda.synchronize()
    return reports() if arrived.numel() else []


def host_looks_only():
    """None of this touches the bytes."""
    host = torch.empty(SIZE).pin_memory()
    host.copy_(torch.ones(SIZE, device="cuda"), non_blocking=True)
    assert host.is_pinned() and host.view(2, -1).t().shape == (SIZE // 2, 2)
    torch.empty_like(host, pin_memory=True)
    torch.cuda.synchronize()
    return reports()


def pinned_memory_that_came_back():
    """PyTorch gives freed pinned memory to the next only when its copies have passed."""
    for i in range(8):
        torch.full((SIZE,), float(i)).pin_memory().to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    return reports()


def again_and_again():
    staging = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(3):
        staging.add_(1)
        with torch.cuda.stream(side):
            staging.mul_(2)
    torch.cuda.synchronize()
    return reports()


def backward():
    layer = torch.nn.Linear(8, 8).cuda()
    side = torch.cuda.Stream()
    inputs = torch.ones(4, 8, device="cuda")
    torch.cuda.synchronize()
    layer(inputs).sum().backward()
    with torch.cuda.stream(side):
        layer.weight.grad.add_(1)
    torch.cuda.synchronize()
    return reports()


def race_in_a_region():
    staging = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with spillway.CPUOffload(1.0, tag="encoder"):
        with spillway.CPUOffload(1.0, tag="attention"):
            pass
        staging.add_(1)
    with torch.cuda.stream(side):
        staging.mul_(2)
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
        "rows": many_rows_of_interleaved_columns(),
        "lists too early": work_in_lists(wait=False),
        "lists in order": work_in_lists(wait=True),
        "running statistics": running_statistics(),
        "host sums too early": host_reads(False, torch.sum),
        "host sums in order": host_reads(True, torch.sum),
        "item": host_reads(False, lambda host: host[3].item()),
        "tolist": host_reads(False, torch.Tensor.tolist),
        "numpy": host_reads(False, torch.Tensor.numpy),
        "array": host_reads(False, torch.Tensor.__array__),
        "all in order": [
            *host_reads(True, torch.Tensor.tolist),
            *host_reads(True, torch.Tensor.numpy),
            *host_reads(True, lambda host: host[3].item()),
        ],
        "host writes too early": host_writes(wait=False),
        "host writes in order": host_writes(wait=True),
        "host looks": host_looks_only(),
        "pinned again": pinned_memory_that_came_back(),
        "again": again_and_again(),
        "backward": backward(),
        "region": race_in_a_region(),
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


def test_columns_of_many_rows_are_told_apart_exactly(seen):
    assert seen["rows"]["apart"] == []
    assert len(seen["rows"]["overlapping"]) == 1


def test_the_elements_of_a_list_are_what_is_written(seen):
    (report,) = seen["lists too early"]
    assert '"aten::_foreach_add_.Scalar" writes' in report
    assert seen["lists in order"] == []


def test_a_write_that_the_schema_hides_is_seen(seen):
    (report,) = seen["running statistics"]
    assert "read after write" in report
    assert '"aten::native_batch_norm" writes 32 bytes' in report


@pytest.mark.parametrize("read", ["host sums too early", "item", "tolist", "numpy", "array"])
def test_reading_pinned_memory_too_early_is_reported(seen, read):
    (report,) = seen[read]
    assert "read after write" in report
    assert "on the host is not ordered after" in report


def test_reading_pinned_memory_in_order_is_not_reported(seen):
    assert seen["host sums in order"] == []
    assert seen["all in order"] == []


def test_overwriting_pinned_memory_too_early_is_reported(seen):
    (report,) = seen["host writes too early"]
    assert '"aten::fill_.Scalar" on the host is not ordered after "memcpy host to device"' in report


def test_overwriting_pinned_memory_in_order_is_not_reported(seen):
    assert seen["host writes in order"] == []


def test_looking_at_a_shape_reads_nothing(seen):
    assert seen["host looks"] == []


def test_pinned_memory_that_is_used_again_is_not_reported(seen):
    assert seen["pinned again"] == []


def test_the_same_two_operations_are_one_report_with_a_count(seen):
    assert len(seen["again"]) == 2  # each after the other
    assert sorted(report.splitlines()[-1].strip() for report in seen["again"]) == ["2 times", "3 times"]


def test_both_operations_are_placed_in_the_program(seen):
    (report,) = seen["lists too early"]
    _, now, before, *_ = report.splitlines()
    assert '"aten::mul.Tensor" reads' in now
    assert "test_order.py:" in now and " in work_in_lists" in now
    assert "test_order.py:" in before and " in work_in_lists" in before


def test_a_backward_operation_is_placed_where_its_forward_operation_was(seen):
    (report,) = seen["backward"]
    assert ": backward of test_order.py:" in report


def test_the_tag_of_the_region_is_named_for_its_operation_alone(seen):
    (report,) = seen["region"]
    _, now, before, *_ = report.splitlines()
    assert '"aten::add_.Tensor" writes' in before and ", tag encoder: " in before
    assert '"aten::mul_.Tensor" writes' in now and ", tag" not in now


def test_training_is_not_reported(seen):
    assert seen["training"] == []


def test_training_under_the_late_schedule_is_not_reported(elsewhere):
    assert elsewhere(train, check="1", schedule="late") == []
