# SPDX-License-Identifier: Apache-2.0
"""The picture of device memory over one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLORS = ("#444444", "#1f77b4", "#d95f02")


def draw(document: dict[str, Any], path: Path) -> None:
    """Writes the last step of every variant as a PNG: allocated bytes as a line, reserved bytes dotted."""
    figure, axes = plt.subplots(figsize=(9, 4.8), dpi=120, layout="constrained")
    for variant, color in zip(document["variants"], COLORS, strict=False):
        allocated = [sample["allocated_bytes"] / 2**20 for sample in variant["memory"]]
        reserved = [sample["reserved_bytes"] / 2**20 for sample in variant["memory"]]
        label = f"{variant['name']}: holds {variant['peak_device_bytes'] / 2**20:.0f} MiB"
        axes.plot(allocated, color=color, linewidth=2, label=label)
        axes.plot(reserved, color=color, linewidth=1, linestyle=":")
    phases = [sample["phase"] for sample in document["variants"][0]["memory"]]
    axes.axvline(phases.index("backward"), color="#999999", linewidth=0.8)
    for phase in ("forward", "backward"):
        axes.text(phases.index(phase), 1.01, phase, transform=axes.get_xaxis_transform(), fontsize=9)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, len(phases) - 1)
    axes.set_xlabel("module boundaries of one training step")
    axes.set_ylabel("device memory (MiB)\nline: allocated, dotted: reserved")
    title = f"Training a {document['parameters'] / 1e6:.1f} M parameter GPT on the {document['device_name']}"
    axes.set_title(title, pad=20)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left", bbox_to_anchor=(0.01, 0.93))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    plt.close(figure)
