# SPDX-License-Identifier: Apache-2.0
"""Small programs, ordered and not, and what the order checker reports of each: the cases of test_order.py."""

import ctypes

import spillway
import torch
from emulated_models import GPT, fit_language_model

SIZE = 1 << 14


def reports():
    """What the checker has reported since the last call."""
    library = ctypes.CDLL(None)
    library.spillway_emulator_race.restype = ctypes.c_char_p
    kept = []
    while (text := library.spillway_emulator_race(ctypes.c_size_t(len(kept)))) is not None:
        kept.append(text.decode())
    library.spillway_emulator_clear_races()
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
    """More rows than could be distinguished one by one."""
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
    """Batch norm writes them, although its schema does not declare it."""
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


def pinned_memory_that_was_fetched():
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
    """Every case, in one process; each ends with the device idle."""
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
        "pinned again": pinned_memory_that_was_fetched(),
        "again": again_and_again(),
        "backward": backward(),
        "region": race_in_a_region(),
        "training": train(),
    }
