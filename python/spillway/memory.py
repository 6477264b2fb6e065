# SPDX-License-Identifier: Apache-2.0
"""GPU memory: limits, usage by tag, residency, eviction, traces, and the allocator as a library."""

from spillway._heads import keep_on_device
from spillway._optimizer_slices import step_in_slices
from spillway._pause import allow_eviction, forbid_eviction, resident
from spillway._summary import by_tag, summary
from spillway.allocator import library_path, pluggable_allocator
from spillway.limits import limit, set_limit
from spillway.trace import read_trace, record_trace

__all__ = [
    "allow_eviction",
    "by_tag",
    "forbid_eviction",
    "keep_on_device",
    "library_path",
    "limit",
    "pluggable_allocator",
    "read_trace",
    "record_trace",
    "resident",
    "set_limit",
    "step_in_slices",
    "summary",
]
