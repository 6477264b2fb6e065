# SPDX-License-Identifier: Apache-2.0
"""Figures of `spillway.recompute()`, at full sizes, predicted by dry runs with the profile of an H200."""

from __future__ import annotations

from bench.figures.registry import Session, figure


def step(session: Session, model: str, way: str) -> dict:
    return session.dry("h200", "recompute", model, way)


def share(session: Session, model: str) -> float:
    return step(session, model, "recompute")["left_to_recompute"] / step(session, model, "plain")["kept"]


SHARE = "bytes released / bytes that plain PyTorch keeps"


@figure("recompute_share_llama", SHARE, ">= 0.43", "cpu")
def llama(session: Session) -> float:
    """Blocks of Llama 3 8B, bfloat16: norms and SwiGLU are recomputed (dry run)."""
    return share(session, "llama")


@figure("recompute_share_gpt2_xl", SHARE, ">= 0.4", "cpu")
def gpt2_xl(session: Session) -> float:
    """Blocks of GPT-2 XL with dropout, bfloat16: norms, GELU and the masks (dry run)."""
    return share(session, "gpt2-xl")


@figure("recompute_share_vit", SHARE, ">= 0.37", "cpu")
def vit(session: Session) -> float:
    """Blocks of ViT-L, bfloat16: norms and GELU (dry run)."""
    return share(session, "vit")


@figure("recompute_share_resnet50", SHARE, ">= 0.35", "cpu")
def resnet50(session: Session) -> float:
    """Blocks of ResNet-50, bfloat16: ReLUs, and the sums at the ends of blocks (dry run)."""
    return share(session, "resnet50")


@figure("recompute_share_unet", SHARE, ">= 0.5", "cpu")
def unet(session: Session) -> float:
    """Residual blocks of a U-Net with group norms and SiLU, bfloat16 (dry run)."""
    return share(session, "unet")


@figure("recompute_peak_llama", "fall of the peak / bytes released", ">= 0.9", "cpu")
def peak(session: Session) -> float:
    """Eight blocks of Llama 3 8B, batch 4, sequence 4096: the peak falls with the bytes (dry run)."""
    plain, recomputed = step(session, "llama", "plain"), step(session, "llama", "recompute")
    return (plain["peak"] - recomputed["peak"]) / recomputed["left_to_recompute"]


@figure("recompute_time_llama", "predicted time of a step, recomputing / plain", "<= 1.02", "cpu")
def time(session: Session) -> float:
    """With its head and loss, the same step takes hardly longer (dry run)."""
    plain, recomputed = (step(session, "llama-with-head", way) for way in ("plain", "recompute"))
    return recomputed["ms"] / plain["ms"]


@figure("recompute_host_us", "us of CPU time per tensor that is recomputed", "<= 1", "emulated")
def host(session: Session) -> float:
    """Beyond its operator, a recomputed tensor costs the host next to nothing."""
    times = session.probe("recipes")
    return (times["more"] - times["operator"]) / 1e3
