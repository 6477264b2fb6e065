# SPDX-License-Identifier: Apache-2.0
"""Statistics of this process, and the types of the snapshot. Sizes are bytes."""

from __future__ import annotations

from typing import Literal, TypedDict

from spillway._load import glue
from spillway._optimizer_slices import whole_steps
from spillway.cannot_help import text

__all__ = [
    "CannotHelp",
    "DeviceStats",
    "DriverStats",
    "HeapStats",
    "HostStats",
    "ModelClassStats",
    "ModelStateStats",
    "PauseStats",
    "PendingSources",
    "PinRefusals",
    "ResidencyStats",
    "SkippedStorages",
    "Stats",
    "StepStats",
    "TagStats",
    "stats",
]


class CannotHelp(TypedDict):
    """Why offloading does not lower the peak."""

    reason: Literal["optimizer", "evaluation", "operator", "compiled_graph", "other_offloader", "model_state"]
    text: str
    bytes: int
    device: int


class DriverStats(TypedDict):
    """Driver calls, over all devices."""

    allocations: int
    registrations: int
    host_syncs: int
    lost_streams: int


class PendingSources(TypedDict):
    """Memory of PyTorch's own allocator that copies still read."""

    bytes: int
    peak_bytes: int


class SkippedStorages(TypedDict):
    """Storages that are not offloaded, for one reason."""

    storages: int
    bytes: int


class ModelClassStats(TypedDict):
    """Model state of one class."""

    storages: int
    resident_bytes: int
    offloaded_bytes: int


class ModelStateStats(TypedDict):
    """Model state that may leave the GPU, over all devices."""

    classes: dict[
        Literal["parameters", "buffers", "gradients", "optimizer_states", "autocast_casts"], ModelClassStats
    ]
    copied_bytes: int
    fetched_bytes: int
    prefetched_bytes: int
    dropped_bytes: int
    overlapped_slices: int
    resident_reasons: dict[str, SkippedStorages]
    whole_steps: dict[str, str]


class StepStats(TypedDict):
    """One training step of one tag."""

    step: int
    offloadable_bytes: int
    offloaded_bytes: int
    copied_bytes: int
    fetched_bytes: int
    left_to_recompute_bytes: int
    recomputed_bytes: int
    skipped: dict[str, SkippedStorages]


class TagStats(TypedDict):
    """The regions of one tag."""

    ratio: float
    plan_mismatches: int
    running: StepStats
    last: StepStats


class HeapStats(TypedDict):
    """The heap of one GPU."""

    allocated_bytes: int
    allocated_peak_bytes: int
    requested_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    offloaded_at_allocated_peak_bytes: int
    offloaded_at_reserved_peak_bytes: int
    evicted_bytes: int
    cached_bytes: int
    rounding_bytes: int
    stranded_bytes: int
    pending_bytes: int
    allocated_blocks: int
    allocations: int
    frees: int
    driver_allocations: int
    driver_releases: int
    fence_waits: int
    out_of_memory: int
    bad_frees: int
    over_budget: int
    replayed_allocations: int
    replay_mismatches: int


class PinRefusals(TypedDict):
    """How often host memory was not pinned, by the limit that refused it."""

    limit: int
    node: int
    machine: int
    driver: int


class HostStats(TypedDict):
    """Pinned host memory of one GPU."""

    pinned_bytes: int
    pinned_peak_bytes: int
    in_slots_bytes: int
    in_slots_peak_bytes: int
    registrations: int
    huge_bytes: int
    advised_bytes: int
    on_node_bytes: int
    node: int
    refused: PinRefusals


class ResidencyStats(TypedDict):
    """Storages that were offloaded from one GPU."""

    stashed_bytes: int
    fetched_bytes: int
    on_host_bytes: int
    offloaded_bytes: int
    stashes: int
    fetches: int
    dropped: int


class PauseStats(TypedDict):
    """Paused memory of one GPU."""

    blocks: int
    paused_bytes: int
    on_host_bytes: int
    copied_out_bytes: int
    copied_in_bytes: int


class DeviceStats(TypedDict):
    """One GPU."""

    heap: HeapStats
    host: HostStats
    residency: ResidencyStats
    pauses: PauseStats


class Stats(TypedDict):
    """The result of `spillway.stats()`."""

    steps: int
    saved_tensor_handles: int
    allocator: str
    uses_spillway: bool
    emulated: bool
    cannot_help: CannotHelp | None
    driver: DriverStats
    pending_sources: PendingSources
    model_state: ModelStateStats
    tags: dict[str, TagStats]
    devices: dict[int, DeviceStats]


def stats() -> Stats:
    """A snapshot of Spillway's counters. Sizes are bytes. Values are integers unless a type is given.

    Its type, ``Stats``, and those of its parts are in ``spillway.statistics``.

    ``steps``
        training steps ended so far.
    ``saved_tensor_handles``
        saved-tensor handles that graphs own now.
    ``allocator`` (str)
        the name of PyTorch's CUDA allocator: "spillway" after ``use_allocator()``.
    ``uses_spillway`` (bool)
        PyTorch's CUDA memory is Spillway's, by ``use_allocator()`` or by the pluggable allocator.
    ``emulated`` (bool)
        the device is the emulated GPU.
    ``cannot_help`` (dict or None)
        why offloading does not lower the peak. None until three steps in a row, each with an optimizer's
        step, have shown a reason. Under PyTorch's own allocator only "other_offloader" is found.

        ``reason`` (str):

        * "optimizer", "evaluation": the peak is reached there.
        * "operator": the peak is reached inside an operator, in memory that no graph saves.
        * "compiled_graph": the peak is reached inside a graph of ``torch.compile``.
        * "other_offloader": other saved-tensor hooks handle the saved tensors.
        * "model_state": parameters, gradients and optimizer states exceed the budget. It is reported at once.
          While it holds, a job under ``spillway run`` keeps its saved tensors on the GPU.

        ``text`` (str): the meaning, and what to do. ``bytes``: the peak; with "operator" the size of its
        allocation, with "model_state" the missing bytes. ``device``: the GPU.
    ``driver``
        Spillway's driver calls, over all devices: ``allocations`` of device memory,
        ``registrations`` of host memory, ``host_syncs`` (times the host waited for the device),
        ``lost_streams`` (of those: because a stream that had used memory was destroyed).
    ``pending_sources``
        memory of PyTorch's own allocator that copies still read: ``bytes``, ``peak_bytes``. Zero after
        ``use_allocator()``.
    ``model_state``
        what a budget may offload beside activations, of a job or of a given model: ``classes``
        (``parameters``, ``buffers``, ``gradients``, ``optimizer_states``, ``autocast_casts``), each with
        ``storages``, ``resident_bytes`` and ``offloaded_bytes`` now; since the beginning: ``copied_bytes``
        (to the host), ``fetched_bytes`` (copied back), of these ``prefetched_bytes`` (before their use),
        ``dropped_bytes`` (offloaded without a copy, because the host copy was still right),
        ``overlapped_slices`` (of optimizer steps, whose kernels ran beside later work);
        ``resident_reasons``: ``storages`` and ``bytes`` that stay on the GPU now, by reason
        (docs/model-state.md); ``whole_steps`` (dict): by class of optimizer, why steps did not run in slices.
    ``tags``
        by tag ("" for regions without one): ``ratio`` (float), ``plan_mismatches`` (steps that deviated from
        their plan), and two steps, ``running`` and ``last``, each with ``step``, ``offloadable_bytes`` (saved
        storages that could be offloaded; each storage counts once), ``offloaded_bytes`` (those that were),
        ``copied_bytes`` (copied to the host: the byte ranges that saved tensors cover), ``fetched_bytes``
        (copied back), ``left_to_recompute_bytes`` (storages that :func:`spillway.recompute` released, each
        once), ``recomputed_bytes`` (each recomputation counts) and ``skipped``: ``storages`` and ``bytes`` by
        reason.
    ``devices``
        by device index:

        ``heap``
            now: ``allocated_bytes``, ``requested_bytes``, ``reserved_bytes`` (physical memory from the
            driver), ``evicted_bytes`` (allocated, but paused), ``cached_bytes`` (reserved, but free),
            ``allocated_blocks``; peaks: ``allocated_peak_bytes``, ``reserved_peak_bytes``, and the bytes
            that were offloaded at these peaks, ``offloaded_at_allocated_peak_bytes`` and
            ``offloaded_at_reserved_peak_bytes``; waste: ``rounding_bytes``, ``stranded_bytes`` (free, but
            in physical chunks that also hold allocated blocks), ``pending_bytes`` (free, but a copy still
            uses it); counters: ``allocations``, ``frees``, ``driver_allocations``, ``driver_releases``,
            ``fence_waits``, ``out_of_memory``, ``bad_frees`` (rejected: no allocated block begins at the
            address), ``over_budget`` (allocations that exceeded a budget, in a step or in an evaluation);
            with SPILLWAY_PLAN_REPLAY: ``replayed_allocations`` and ``replay_mismatches`` (steps).
        ``host``
            pinned memory: ``pinned_bytes``, ``pinned_peak_bytes``, ``in_slots_bytes``,
            ``in_slots_peak_bytes``, ``registrations``; of the pinned bytes: ``huge_bytes`` (in huge pages
            of the machine's pool), ``advised_bytes`` (in transparent huge pages, if available),
            ``on_node_bytes`` (requested on ``node``, the device's NUMA node; -1: unknown); ``refused``: how
            often memory was not pinned because of SPILLWAY_PINNED_LIMIT (``limit``),
            SPILLWAY_NODE_PINNED_LIMIT (``node``), the machine or a control group (``machine``), or the driver
            (``driver``).
        ``residency``
            since the beginning: ``stashed_bytes``, ``fetched_bytes``, ``stashes``, ``fetches``, ``dropped``
            (host copies that were released without a fetch); now: ``on_host_bytes``, and of these
            ``offloaded_bytes`` (not on the device).
        ``pauses``
            paused now by ``spillway.pause``: ``blocks``, ``paused_bytes``, ``on_host_bytes`` (with a copy);
            since the beginning: ``copied_out_bytes``, ``copied_in_bytes``.
    """
    snapshot = glue().stats()
    snapshot["model_state"]["whole_steps"] = whole_steps()
    if (why := snapshot["cannot_help"]) is not None:
        why["text"] = text(why["reason"], why["bytes"])
    return snapshot
