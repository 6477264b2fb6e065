# SPDX-License-Identifier: Apache-2.0
"""Host memory: its size, its limits, and its NUMA nodes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from spillway.doctor.finding import Finding, ok, warning
from spillway.report.sizes import size

ROOT = Path("/")


def memory() -> Iterator[Finding]:
    found = {}
    for line in (ROOT / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024
    total, available = found["MemTotal"], found.get("MemAvailable", 0)
    yield ok("host memory", f"{size(total)}, {size(available)} of it available")
    limit = control_group_limit()
    if limit is None or limit >= total:
        yield ok("control group", "no limit below the machine's memory")
    elif limit < total / 4:
        yield warning(
            "control group",
            f"at most {size(limit)} of the machine's {size(total)}",
            "give the container more memory: activations that do not fit stay on the GPU",
        )
    else:
        yield ok("control group", f"at most {size(limit)}")


def control_group_limit() -> int | None:
    """The least memory limit of the groups that this process is in, of both versions."""
    limits = []
    for line in _lines("proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            if controllers
            else ("sys/fs/cgroup", "memory.max")
        )
        group = Path(path.lstrip("/"))
        for each in [group, *group.parents]:
            for text in _lines(f"{base}/{each}/{name}"):
                if text.isdigit():
                    limits.append(int(text))
    return min(limits, default=None)


def _lines(path: str) -> list[str]:
    try:
        return (ROOT / path).read_text().split("\n")[:-1]
    except OSError:
        return []


def locked_memory() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield ok("locked memory", "no limit")
    else:
        # The driver pins memory in the kernel, which does not count it; RDMA libraries lock as users do.
        yield ok(
            "locked memory", f"at most {size(soft)} (ulimit -l); pinned memory of the driver does not count"
        )


def numa() -> Iterator[Finding]:
    nodes = [each.name for each in (ROOT / "sys/devices/system/node").glob("node[0-9]*")]
    allowed = [
        line.split(":", 1)[1].strip()
        for line in _lines("proc/self/status")
        if line.startswith("Mems_allowed_list")
    ]
    if len(nodes) <= 1:
        yield ok("NUMA", "one node")
        return
    text = f"{len(nodes)} nodes, memory of {allowed[0] if allowed else 'all'} allowed"
    if allowed and allowed[0] != f"0-{len(nodes) - 1}":
        yield warning(
            "NUMA",
            text,
            "pinned memory is fastest on the GPU's node: allow that node (numactl --membind, cpuset)",
        )
    else:
        yield ok("NUMA", text)


def shared_memory() -> Iterator[Finding]:
    try:
        system = os.statvfs(ROOT / "dev/shm")
    except OSError:
        yield warning(
            "/dev/shm", "is missing", "mount it: the ledger of pinned memory and data loaders need it"
        )
        return
    total = system.f_frsize * system.f_blocks
    if total < 2**30:
        yield warning(
            "/dev/shm", size(total), "data loaders need more: in Docker --shm-size=8g or --ipc=host"
        )
    else:
        yield ok("/dev/shm", size(total))
