# SPDX-License-Identifier: Apache-2.0
"""The programs that are predicted, and what others have published about the same."""

from __future__ import annotations

from dataclasses import dataclass, field

TORCHTUNE = (
    "README.md of pytorch/torchtune, commit 1814feb17 (2024-11-18), 'Optimization flags': "
    "Llama-3.2-3B, A100, batch 2, 4096 tokens"
)


LLM_C = (
    "README.md of karpathy/llm.c (April 2024), its PyTorch script: GPT-2 124M, A100 40 GB PCIe, batch 4, "
    "1024 tokens, float32, torch 2.1"
)

LITGPT = (
    "tutorials/resource-tables.md of Lightning-AI/litgpt (2023-10-20): LoRA without quantization, bf16-true, "
    "A100 40 GB, longest example of Alpaca, torch 2.1"
)


@dataclass(frozen=True)
class Published:
    peak_gib: float | None  # of torch's "active" bytes, or of those that are allocated
    tokens_per_second: float | None
    source: str


@dataclass(frozen=True)
class Case:
    """A program of bench/predictions/programs; the same command runs dry and on a GPU of its profile."""

    name: str
    program: str
    arguments: tuple[str, ...]
    profile: str
    run: tuple[str, ...] = ()  # options of `spillway run`
    needs: str = ""  # a package of bench/peers
    published: Published | None = field(default=None, compare=False)

    @property
    def compiled(self) -> bool:
        return "--compile" in self.arguments

    @property
    def command(self) -> tuple[str, ...]:
        run = ("spillway", "run", *self.run, "--") if self.run else ()
        return (*run, "python", f"bench/predictions/programs/{self.program}.py", *self.arguments)


def _torchtune(name: str, peak_gib: float, tokens_per_second: float, *flags: str) -> Case:
    return Case(
        f"torchtune-3b-{name}", "llama_3b", flags, "a100-80g",
        needs="torchtune" if "--offload" in flags else "",
        published=Published(peak_gib, tokens_per_second, TORCHTUNE),
    )  # fmt: skip


def _llm_c(name: str, milliseconds: float, *flags: str) -> Case:
    published = Published(None, round(4 * 1024 / milliseconds * 1e3), LLM_C)
    return Case(f"llm.c-{name}", "gpt2_124m", flags, "a100-40g", published=published)


def _lora(model: str, batch: int, gigabytes: float) -> Case:
    """The published times are of shorter examples."""
    published = Published(round(gigabytes * 1e9 / 2**30, 2), None, LITGPT)
    arguments = (model, "--batch", str(batch))
    return Case(f"litgpt-{model}-{batch}", "lora", arguments, "a100-40g", published=published)


def _llama(way: str, *arguments: str, needs: str = "", run: tuple[str, ...] = ()) -> Case:
    return Case(f"llama-8b-{way}", "llama_8b", arguments, "h200", run, needs=needs)


def _part(way: str, *arguments: str, needs: str = "", run: tuple[str, ...] = ()) -> Case:
    """A quarter of the layers and four times the batch: activations weigh more, and it fits on an H100."""
    shape = ("--layers", "8", "--batch", "4")
    return Case(f"llama-2b-{way}", "llama_8b", (*arguments, *shape), "h100", run, needs=needs)


_C, _P, _K, _B, _O = "--compile", "--chunked", "--checkpoint", "--in-backward", "--offload"
_F, _T = "--forward", "--tensorcores"
CASES = (
    _torchtune("packed", 60.0, 7075),
    _torchtune("compile", 51.0, 8998, _C),
    _torchtune("chunked", 42.9, 9174, _C, _P),
    _torchtune("checkpoint", 24.9, 7210, _C, _P, _K),
    _torchtune("in-backward", 23.1, 7309, _C, _P, _K, _B),
    _torchtune("offload", 21.8, 7301, _C, _P, _K, _B, _O),
    _llm_c("forward", 104, _F),
    _llm_c("forward-compile", 86, _F, _C),
    _llm_c("forward-compile-tf32", 26.2, _F, _C, _T),
    _llm_c("compile-tf32", 80, _C, _T),
    _lora("phi-1.5", 1, 4.82),
    _lora("phi-1.5", 2, 6.76),
    _lora("phi-1.5", 4, 10.68),
    _lora("stablelm-3b", 1, 9.69),
    _lora("stablelm-3b", 2, 12.10),
    _lora("stablelm-3b", 4, 16.92),
    _lora("llama-2-7b", 1, 21.30),
    _lora("llama-2-7b", 2, 29.07),
    _lora("llama-2-13b", 1, 38.12),
    *(
        case
        for job in (_llama, _part)
        for case in (
            job("plain", "plain"),
            job("spillway", "plain", run=("--ratio", "0.5")),
            job("recompute", "plain", run=("--recompute",)),
            job("checkpoint", "checkpoint"),
            job("save_on_cpu", "save_on_cpu"),
            job("trl", "trl", needs="trl"),
            job("torchtune", "torchtune", needs="torchtune"),
        )
    ),
)

# What one way takes of the time of another: its name, the slower and the faster one.
RATIOS = (
    ("checkpoints to none", "torchtune-3b-checkpoint", "torchtune-3b-chunked"),
    ("offload to none", "torchtune-3b-offload", "torchtune-3b-in-backward"),
    ("eager to compiled", "torchtune-3b-packed", "torchtune-3b-compile"),
    ("eager to compiled, forward", "llm.c-forward", "llm.c-forward-compile"),
)
