# SPDX-License-Identifier: Apache-2.0
"""What a saved tensor asks of the driver: times are for scripts/peers and scripts/figures."""

import ctypes

import spillway
import torch

from cases import case
from cases.measure import Copied, save

TENSORS = 50
NBYTES = 4096 * 4
CALLS = {
    "copies": ("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyBatchAsync"),
    "records": ("cuEventRecord", "cudaEventRecord", "cudaEventRecordWithFlags"),
    "waits": ("cuStreamWaitEvent", "cudaStreamWaitEvent"),
    "host waits": ("host_syncs",),
    "made": ("cuEventCreate", "device_allocations", "host_registrations"),
    "contexts": ("cuCtxPushCurrent", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode"),
    "questions": ("cuEventQuery", "cuStreamIsCapturing", "cudaStreamIsCapturing"),
}


def calls():
    """So far, by kind; none where there is no emulated GPU to count them."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "spillway_emulator_count"):
        return {}
    library.spillway_emulator_count.restype = ctypes.c_uint64
    return {
        kind: sum(library.spillway_emulator_count(name.encode()) for name in names)
        for kind, names in CALLS.items()
    }


def asked(region):
    """What the third of three equal steps asks, and what it moves."""
    for _ in range(3):
        torch.cuda.synchronize()
        before = calls()
        with Copied() as copied:
            with region:
                graphs = [save([], torch.empty(NBYTES // 4, device="cuda")) for _ in range(TENSORS)]
            while graphs:
                graphs.pop().backward()
        after = calls()
    return {kind: after[kind] - before[kind] for kind in before}, copied


@case
def a_tensor_that_stays_asks_the_driver_for_nothing():
    plain, _ = asked(spillway.compat.NoOpManager())
    for region in (
        spillway.CPUOffload(0, tag="costs, ratio 0"),
        spillway.compat.OffloadActivations(min_offload_size=NBYTES + 1),
    ):
        found, copied = asked(region)
        assert found == plain and copied.out == 0, (found, plain)
    found, copied = asked(spillway.CPUOffload(1, tag="costs, ratio 1"))
    assert copied.out == TENSORS * NBYTES and (found != plain or not plain)


@case
def a_tensor_that_moves_costs_one_copy_each_way_and_few_calls():
    plain, _ = asked(spillway.compat.NoOpManager())
    found, copied = asked(spillway.CPUOffload(1, tag="costs, offloaded"))
    assert (copied.out, copied.stashes) == (TENSORS * NBYTES, TENSORS)
    assert copied.back <= copied.out and copied.fetches <= TENSORS
    more = {kind: found[kind] - plain[kind] for kind in found}
    if not more:
        return
    assert more["copies"] == copied.stashes + copied.fetches
    # Each way one fence before the copy and one after it, and who waits for them.
    assert more["records"] <= 4 * TENSORS and more["waits"] <= 5 * TENSORS, more
    assert more["host waits"] == 0 and more["made"] <= 2, more
    assert more["contexts"] <= 24 * TENSORS and more["questions"] <= 16 * TENSORS, more
