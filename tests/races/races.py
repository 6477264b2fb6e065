# SPDX-License-Identifier: Apache-2.0
"""Small programs with one known race each; with `racy=False` the same program with the race fixed.

Each ends with the device idle, so that the next one starts from an order that everybody knows.
"""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

SIZE = 1 << 12
H2D = "memcpy host to device"
D2H = "memcpy device to host"


@dataclass(frozen=True)
class Race:
    program: Callable[[bool], object]
    operations: frozenset[str]  # what the report must name


RACES: dict[str, Race] = {}


def race(*operations):
    def keep(program):
        RACES[program.__name__] = Race(program, frozenset(operations))
        return program

    return keep


def main_stream():
    return torch.cuda.current_stream()


def on_device(value=0.0):
    return torch.full((SIZE,), float(value), device="cuda")


def pinned(value=1.0):
    return torch.full((SIZE,), float(value)).pin_memory()


@race("aten::mul.Tensor", H2D)
def missing_producer_wait(racy):
    side, source, target = torch.cuda.Stream(), pinned(), on_device()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    if not racy:
        main_stream().wait_stream(side)
    return target * 2


@race("aten::add_.Tensor", D2H)
def source_reused_while_copied(racy):
    side, source, target = torch.cuda.Stream(), on_device(), pinned()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    if not racy:
        main_stream().wait_stream(side)
    return source.add_(1)


@race("aten::mul.Tensor", H2D)
def destination_overwritten_while_read(racy):
    side, source, staging = torch.cuda.Stream(), pinned(), on_device()
    torch.cuda.synchronize()
    result = staging * 2
    if not racy:
        side.wait_stream(main_stream())
    with torch.cuda.stream(side):
        staging.copy_(source, non_blocking=True)
    return result


@race(H2D, D2H)
def slot_reused(racy):
    """A pinned slot takes the next tensor before the last one has been read out of it."""
    reload, offload = torch.cuda.Stream(), torch.cuda.Stream()
    slot, first, second = pinned(), on_device(1), on_device(2)
    torch.cuda.synchronize()
    with torch.cuda.stream(reload):
        first.copy_(slot, non_blocking=True)
    if not racy:
        offload.wait_stream(reload)
    with torch.cuda.stream(offload):
        slot.copy_(second, non_blocking=True)


@race("aten::add.Tensor", D2H)
def cross_stream_free(racy):
    side, target, other = torch.cuda.Stream(), pinned(), on_device(1)
    source = on_device(2)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    if not racy:
        source.record_stream(side)
    del source
    return other + 1  # takes the freed block


@race("aten::mul.Tensor", H2D)
def event_recorded_too_early(racy):
    side, source, target, arrived = torch.cuda.Stream(), pinned(), on_device(), torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        if racy:
            arrived.record()
        target.copy_(source, non_blocking=True)
        if not racy:
            arrived.record()
    main_stream().wait_event(arrived)
    return target * 2


@race("aten::mul.Tensor", "memset")
def default_stream_confusion(racy):
    """The default stream waits for streams that are made blocking, and for no others."""
    non_blocking = 1
    runtime, handle, target = ctypes.CDLL(None), ctypes.c_void_p(), on_device()
    torch.cuda.synchronize()
    assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), non_blocking if racy else 0) == 0
    bytes_, at = ctypes.c_size_t(SIZE * 4), ctypes.c_void_p(target.data_ptr())
    assert runtime.cudaMemsetAsync(at, 0, bytes_, handle) == 0
    result = target * 2
    torch.cuda.synchronize()
    assert runtime.cudaStreamDestroy(handle) == 0
    return result


@race("aten::sum.dim_IntList", D2H)
def host_reads_too_early(racy):
    source, target, arrived = on_device(3), pinned(0), torch.cuda.Event()
    target.copy_(source, non_blocking=True)
    arrived.record()
    if not racy:
        arrived.synchronize()
    return target.sum()


@race("aten::fill_.Scalar", H2D)
def host_overwrites_its_source_too_early(racy):
    source, target = pinned(), on_device()
    target.copy_(source, non_blocking=True)
    if not racy:
        torch.cuda.synchronize()
    return source.fill_(2)


@race("aten::mul.Tensor", H2D)
def wait_on_the_wrong_stream(racy):
    side, other, source, target = torch.cuda.Stream(), torch.cuda.Stream(), pinned(), on_device()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
    main_stream().wait_stream(other if racy else side)
    return target * 2


@race("aten::mul.Tensor", H2D)
def wait_before_record(racy):
    """A wait for an event that has not been recorded waits for nothing."""
    side, source, target, arrived = torch.cuda.Stream(), pinned(), on_device(), torch.cuda.Event()
    torch.cuda.synchronize()
    if racy:
        main_stream().wait_event(arrived)
    with torch.cuda.stream(side):
        target.copy_(source, non_blocking=True)
        arrived.record()
    if not racy:
        main_stream().wait_event(arrived)
    return target * 2


@race("aten::mul.Tensor", H2D)
def missing_wait_after_reload(racy):
    """Away and back on one side stream, in order; only the consumer does not wait."""
    side, saved = torch.cuda.Stream(), on_device(3)
    slot, back = pinned(), on_device()
    side.wait_stream(main_stream())
    with torch.cuda.stream(side):
        slot.copy_(saved, non_blocking=True)
        back.copy_(slot, non_blocking=True)
    if not racy:
        main_stream().wait_stream(side)
    return back * 2


@race("aten::add_.Tensor", "aten::mul_.Tensor")
def two_host_threads(racy):
    """Each thread has its stream. A lock orders the threads, and no stream."""
    shared, done, turn = on_device(1), torch.cuda.Event(), threading.Event()
    torch.cuda.synchronize()

    def first():
        with torch.cuda.stream(torch.cuda.Stream()):
            shared.add_(1)
            done.record()
        turn.set()

    def second():
        turn.wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            if not racy:
                main_stream().wait_event(done)
            shared.mul_(2)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@race("aten::fill_.Scalar", H2D)
def host_function_writes_pinned_memory(racy):
    """A function on a stream fills the slot that another stream's copy reads."""
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    slot, target = pinned(), on_device()
    torch.cuda.synchronize()
    fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: slot.fill_(2) and None)
    launch = ctypes.CDLL(None).cudaLaunchHostFunc
    assert launch(ctypes.c_void_p(producer.cuda_stream), fill, None) == 0
    if not racy:
        consumer.wait_stream(producer)
    with torch.cuda.stream(consumer):
        target.copy_(slot, non_blocking=True)
    torch.cuda.synchronize()


@race("memcpy device to device", "aten::mul_.Tensor")
def bucket_reused(racy):
    """The next gradients go into a bucket that the reduction of the last ones still works on."""
    reduction = torch.cuda.Stream()
    bucket = torch.zeros(2, SIZE, device="cuda")
    gradients = [on_device(1), on_device(2)]
    torch.cuda.synchronize()
    for step in range(2):
        torch._foreach_copy_([bucket[0], bucket[1]], gradients)
        reduction.wait_stream(main_stream())
        with torch.cuda.stream(reduction):
            bucket.mul_(0.5)
        if not racy or step == 1:
            main_stream().wait_stream(reduction)


@race("aten::mm", H2D)
def prefetch_into_a_buffer_in_use(racy):
    """Two buffers for three layers: the third arrives while the first is still computed with."""
    side, sources = torch.cuda.Stream(), [torch.ones(64, 64).pin_memory() for _ in range(3)]
    buffers = [torch.zeros(64, 64, device="cuda") for _ in range(2)]
    value = torch.ones(64, 64, device="cuda")
    arrived, used = [torch.cuda.Event() for _ in sources], [torch.cuda.Event() for _ in sources]
    torch.cuda.synchronize()

    def fetch(layer):
        with torch.cuda.stream(side):
            if layer >= len(buffers) and not racy:
                side.wait_event(used[layer - len(buffers)])
            buffers[layer % len(buffers)].copy_(sources[layer], non_blocking=True)
            arrived[layer].record()

    fetch(0)
    for layer in range(len(sources)):
        main_stream().wait_event(arrived[layer])
        value = value @ buffers[layer % len(buffers)]
        used[layer].record()
        if layer + 1 < len(sources):
            fetch(layer + 1)
    return value


@race("aten::add_.Tensor", "aten::mul_.Tensor")
def views_that_share_a_column(racy):
    matrix, side = torch.zeros(300, 8, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    matrix[:, :4].add_(1)
    with torch.cuda.stream(side):
        matrix[:, 3 if racy else 4 :].mul_(2)


def reports():
    """What the checker has reported since the last call."""
    runtime = ctypes.CDLL(None)
    runtime.spillway_emulator_race.restype = ctypes.c_char_p
    kept = []
    while (text := runtime.spillway_emulator_race(ctypes.c_size_t(len(kept)))) is not None:
        kept.append(text.decode())
    runtime.spillway_emulator_clear_races()
    return kept


def run_all():
    """The reports of each program, racy and fixed."""
    seen = {}
    for name, each in RACES.items():
        for racy in (True, False):
            kept = each.program(racy)
            torch.cuda.synchronize()
            seen[f"{name} {'racy' if racy else 'fixed'}"] = reports()
            del kept
    return seen
