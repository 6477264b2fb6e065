# SPDX-License-Identifier: Apache-2.0
"""Why each of the other systems cannot be imported; empty where it can."""

from __future__ import annotations

import json

from bench.peers import systems

print(json.dumps({name: load().reason for name, load in systems.ALL.items()}))
