# SPDX-License-Identifier: Apache-2.0
"""Training loops in dry runs: plain, checkpointed, and under a budget of what checkpointing reserves."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.results import ROOT, RunFailed, last_json, output_of

LIBRARIES = ROOT / "build" / "models" / "lib"
PROGRAM = ROOT / "bench" / "models" / "programs" / "train.py"
#: By the names of programs/vision.py and programs/sequences.py.
MODELS = {
    "resnet50": "ResNet-50, batch 256",
    "convnext": "ConvNeXt-B, batch 128",
    "efficientnet": "EfficientNet-B4, batch 128",
    "swin": "Swin-B, batch 128",
    "vit": "ViT-L/16, batch 128",
    "unet": "UNet of SD 1.5, batch 16",
    "gpt2_xl": "GPT-2 XL, 8 x 1024",
    "bert_large": "BERT-large, 32 x 512",
    "llama_8_layers": "Llama 3 8B, 8 layers, 4 x 4096",
    "llama_32k": "Llama 3 8B, 8 layers, 32768",
    "llama_8b": "Llama 3 8B, 4096",
    "mixtral": "Mixtral, 2 layers, 4 x 4096",
    "whisper_large": "Whisper-large, batch 8",
    "lstm": "LSTM, 16 layers, 64 x 256",
}
WAYS = ("checkpoint", "save_on_cpu")
PRECISIONS = ("autocast", "bfloat16")
PROFILES = ("h200", "rtx4090")
#: Steps without a budget repeat exactly. Under one, plans settle first.
STEPS, STEPS_OF_BUDGET = 4, 20
SETTLED = 5
LIMIT = 900  # seconds
NO_ROOM = "does not fit"
# cuBLAS computes the same again only with workspaces of its own, so recurrent layers need this.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Loop:
    """A model's training loop on the profile of a GPU."""

    model: str
    precision: str
    profile: str

    def run(self, way: str, budget: int | None = None) -> dict[str, Any]:
        """What programs/job.py prints. Raises RunFailed."""
        options = [] if budget is None else ["--budget", str(budget)]
        steps = STEPS if budget is None else STEPS_OF_BUDGET
        program = [sys.executable, str(PROGRAM), self.model, way, self.precision, str(steps)]
        command = [sys.executable, "-m", "spillway", "dry-run", self.profile, *options, "--", *program]
        paths = filter(None, (os.environ.get("PYTHONPATH"), str(LIBRARIES)))
        environment = {**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(paths)}
        marked = [
            line
            for line in output_of(command, environment, LIMIT, tail=200).splitlines()
            if line.startswith("measured: ")
        ]
        if not marked:
            raise RunFailed(f"{' '.join(command)} printed no measurement")
        found: dict[str, Any] = last_json(marked[-1])
        return {**found, "ms": settled(found["steps"])}

    def measure(self) -> dict[str, Any]:
        """By way what it takes, with "ours" in the same memory; "failed" in place of what has no figures."""
        found: dict[str, Any] = {"plain": self.attempt("plain")}
        for way in WAYS:
            one = self.attempt(way)
            if "failed" not in one:
                one["ours"] = self.attempt("plain", one["reserved"])
            found[way] = one
        return found

    def attempt(self, way: str, budget: int | None = None) -> dict[str, Any]:
        try:
            return self.run(way, budget)
        except RunFailed as failure:
            text = str(failure)
            return {"failed": NO_ROOM if "OutOfMemoryError" in text else text[-400:]}


def settled(steps: list[float]) -> float:
    """Milliseconds of a step at the end of the run."""
    return median(steps[-SETTLED:]) if len(steps) > SETTLED else steps[-1]
