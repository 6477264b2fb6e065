# SPDX-License-Identifier: Apache-2.0
"""Tags of memory: automatic tags by role, and patterns. ``spillway.tag`` opens a scope."""

from spillway._tag import matches
from spillway.roles import unwatch, watch

__all__ = ["matches", "unwatch", "watch"]
