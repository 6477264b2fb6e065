# SPDX-License-Identifier: Apache-2.0
"""What calls on virtual memory cost the host, from the measurements of `spillway bench alloc`."""

from __future__ import annotations

from spillway.bench.results import Measured

from bench.device_profile.link import bytes_of

FILTER = "BM_Remap/(one_chunk|chunks_of_2MiB)/"
CALL = 1e-6  # of any call, as in the profile
CALLS = ("create", "map", "access", "unmap", "release")
RATES = {"create_rate": CALLS[:3], "release_rate": CALLS[3:]}
CHARGED = {"create_rate": "create", "release_rate": "release"}  # the call that has the bytes of a small chunk
_NO_LIMIT = 1e18  # bytes per second


def of(measured: list[Measured]) -> dict[str, float]:
    """Seconds of each call for a chunk, from many small ones, and rates of bytes, from the largest one."""
    found = {one.parameters: one for one in measured if one.family == "Remap"}
    [many] = [name for name in found if name.startswith("chunks_of_")]
    chunk, total = (bytes_of(size) for size in many.removeprefix("chunks_of_").split())
    one = max(
        (name for name in found if name.startswith("one_chunk ")), key=lambda name: bytes_of(name.split()[1])
    )
    size = bytes_of(one.split()[1])

    def seconds(name: str, call: str, chunks: int) -> float:
        """For each chunk, without what any call costs. One call allows access to all of them."""
        calls = 1 if call == "access" else chunks
        return max(0.0, found[name].counters[f"{call}_us"] * 1e-6 - calls * CALL) / chunks

    costs = {call: seconds(many, call, total // chunk) for call in CALLS}
    for rate, calls in RATES.items():
        by_bytes = sum(seconds(one, call, 1) - costs[call] for call in calls)
        costs[rate] = min(_NO_LIMIT, (size - chunk) / by_bytes) if by_bytes > 0 else _NO_LIMIT
        costs[CHARGED[rate]] = max(0.0, costs[CHARGED[rate]] - chunk / costs[rate])
    return costs
