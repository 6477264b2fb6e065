# SPDX-License-Identifier: Apache-2.0
"""Runs the variants, each in a process of its own, and compares them with the plain one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from typing import Any

from spillway import launch
from spillway.demo.config import VariantConfig


class VariantFailed(Exception):
    """A variant's process ended without a result; the message has its last lines."""


def run_variant(config: VariantConfig, on_step: Callable[[int], None]) -> dict[str, Any]:
    """Trains one variant to its end and returns its result."""
    environment = launch.environment(True) if config.device == "emulated" else dict(os.environ)
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic matrix products on a real GPU
    read, write = os.pipe()
    command = [sys.executable, "-m", "spillway.demo.train_variant", json.dumps(asdict(config)), str(write)]
    result: dict[str, Any] | None = None
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, pass_fds=[write], stdout=said, stderr=said)
        os.close(write)
        try:
            with os.fdopen(read) as lines:
                for line in lines:
                    message = json.loads(line)
                    if "step" in message:
                        on_step(message["step"])
                    else:
                        result = message
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if status != 0 or result is None:
            said.seek(0)
            tail = said.read().decode(errors="replace").strip().splitlines()[-25:]
            raise VariantFailed(
                "\n".join(
                    [
                        f"variant {name(config.ratio)}: failed with exit status {status}. Its last lines:",
                        *tail,
                    ]
                )
            )
    return result


def name(ratio: float | None) -> str:
    return "plain" if ratio is None else f"ratio {ratio:g}"


def document(config: VariantConfig, results: list[dict[str, Any]], command: list[str]) -> dict[str, Any]:
    """The comparison of `results`, of which the first is the plain variant, as --json writes it."""
    plain = results[0]
    return {
        "device": config.device,
        "device_name": plain["device_name"],
        "versions": {
            "spillway": spillway_version(),
            "torch": metadata.version("torch"),
            "cuda": plain["cuda"],
            "python": platform.python_version(),
        },
        "command": command,
        "allocator": config.allocator,
        "seed": config.seed,
        "parameters": plain["parameters"],
        "data": config.data or "Python standard library",
        "variants": [variant(result, plain) for result in results],
    }


def spillway_version() -> str:
    try:
        return metadata.version("spillway")
    except metadata.PackageNotFoundError:
        return "unknown"


def variant(result: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """One entry of the document's `variants`."""
    last = result["steps"][-1]

    def column(key: str, of: dict[str, Any] = result) -> list[Any]:
        return [step[key] for step in of["steps"]]

    return {
        "name": name(result["ratio"]),
        "ratio": result["ratio"] or 0.0,
        "peak_device_bytes": result["peak_device_bytes"],
        "peak_allocated_bytes": result["peak_allocated_bytes"],
        "emulator_peak_bytes": result["emulator_peak_bytes"],
        "offloaded_at_peak_bytes": result["offloaded_at_peak_bytes"],
        "offloaded_at_allocated_peak_bytes": result["offloaded_at_allocated_peak_bytes"],
        **{key: last[key] for key in ("saved_bytes", "offloaded_bytes", "fetched_bytes", "skipped")},
        "offloaded_bytes_by_step": column("offloaded_bytes"),
        "saved_bytes_by_step": column("saved_bytes"),
        "host_peak_bytes": result["host_peak_bytes"],
        "host_pinned_bytes": result["host_pinned_bytes"],
        "host_slots_peak_bytes": result["host_slots_peak_bytes"],
        "step_ms": column("ms"),
        "losses": column("loss"),
        "losses_equal_plain": column("loss") == column("loss", plain),
        "grads_equal_plain": column("gradients") == column("gradients", plain),
        "steady_driver_allocs": steady(result, plain, "device_allocations", "host_registrations"),
        "steady_host_syncs": steady(result, plain, "host_syncs"),
        "unordered": result["unordered"],
        "memory": result["memory"],
    }


def steady(result: dict[str, Any], plain: dict[str, Any], *counts: str) -> int | None:
    """How often Spillway did one of `counts` from step STEADY on; None where there was no such step.

    The larger of its own counters and, on the emulated GPU, of the emulator's count less the plain variant's.
    """
    if result["steady"] is None:
        return None
    own = sum(result["steady"]["spillway"].get(count, 0) for count in counts)
    seen = [sum(of["steady"]["emulator"].get(count, 0) for count in counts) for of in (result, plain)]
    most: int = max(own, seen[0] - seen[1], 0)
    return most
