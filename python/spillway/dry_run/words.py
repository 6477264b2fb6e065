# SPDX-License-Identifier: Apache-2.0
"""The texts of a dry run's page, in the terminal and in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spillway._resident_reasons import class_lines, reason_lines
from spillway.dry_run.answer import Answer, missing
from spillway.report.sizes import count, percent, size, span

__all__ = [
    "COMPILED",
    "NOT_COMPARED",
    "NO_GPU_USED",
    "NO_STEP",
    "blocks",
    "facts",
    "maker",
    "makers",
    "milliseconds",
    "model_state",
    "nothing",
    "role",
    "title",
    "unsettled",
]

NOT_COMPARED = (
    "Times are modeled, and not compared with hardware. The workspaces of some kernels are not counted "
    "(docs/dry_run.md)."
)

COMPILED = (
    "compiled code is modeled with one kernel for each fusion of inductor; the step time does not predict "
    "torch.compile's speed"
)

_PINNED_SHOWN = 1 << 20  # bytes; a little of it every program has

NO_STEP = "unknown: no optimizer completed a step"

NO_GPU_USED = "no Python process of the command used the GPU and exited normally"


def title(process: dict[str, Any], device: dict[str, Any], profile: str, several: bool) -> str:
    where = ""
    if several:
        rank = process["rank"]
        where = f", GPU {device['index']}" if rank is None else f", rank {rank}, GPU {device['index']}"
    return f"Dry run on {profile or device['name']} ({size(device['capacity_bytes'])}){where}"


def facts(
    process: dict[str, Any], device: dict[str, Any], samples: float | None, failed: bool = False
) -> list[tuple[str, str]]:
    """Subject and text of each. `failed`: the program has failed."""
    reserved = device["peak_reserved_bytes"]
    found = [
        (
            "memory",
            f"{size(device['peak_allocated_bytes'])} allocated at the peak{_offloaded(device)}, "
            f"{size(reserved)} reserved: "
            f"{percent(reserved / device['capacity_bytes'])} of the GPU's memory",
        ),
        ("fits", _fits(process, device, failed)),
        ("step", _step(process, samples, failed)),
    ]
    if exceeded := device.get("budget_exceeded"):
        found.insert(2, ("budget", f"exceeded: {exceeded}"))
    if process.get("compiled"):
        found.append(("compile", COMPILED))
    shares = device["shares"]
    if shares:
        found.append(("time", _shares(shares)))
    copied = process["copied_per_step"]
    if copied["to_host_bytes"] or copied["to_device_bytes"]:
        found.append(("copies", _copies(copied, shares, bool(process["steps"]["count"]))))
    if shares and shares["collectives"]:
        found.append(("ranks", f"collectives for {percent(shares['collectives'])} of the time"))
    if (state := process.get("model_state")) and (text := model_state(state)):
        found.append(("state", f"at the end: {text}"))
        if stays := reason_lines(state):
            found.append(("stays", f"on the GPU: {'; '.join(stays)}"))
    why = process.get("cannot_help")
    if why is not None and why["device"] == device["index"]:
        found.append(("offload", why["text"]))
    if process["peak_pinned_bytes"] >= _PINNED_SHOWN:
        found.append(("host", f"{size(process['peak_pinned_bytes'])} of its memory pinned at the peak"))
    return found


def _offloaded(device: dict[str, Any]) -> str:
    away = device.get("offloaded_at_peak_bytes", 0)
    return f" while {size(away)} were offloaded" if away else ""


def _fits(process: dict[str, Any], device: dict[str, Any], failed: bool) -> str:
    ended = device["out_of_memory"]
    if failed and (missed := process.get("budget_missed")):
        return f"not within the budget: {missed}"
    if ended is None:
        return "unknown: the program failed for another reason" if failed else "yes"
    by = f" by {maker(ended)}" if ended["operator"] or ended["lines"] else ""
    short = missing(device)
    why = f"{size(short)} more than available" if short else "enough was free, but not as one block"
    if short is None and not process["expandable_segments"]:
        why += " (expandable_segments:True can help)"
    times = f"; memory ran out {count(ended['times'], 'time')}" if ended["times"] > 1 else ""
    return (
        f"no: with {size(ended['allocated_bytes'])} allocated, {size(ended['requested_bytes'])} were "
        f"requested{by}: {why}{times}. --compare plain shows what the whole program needs"
    )


def _step(process: dict[str, Any], samples: float | None, failed: bool) -> str:
    steps = process["steps"]
    if not steps["count"]:
        return NO_STEP
    step = steps["median_ms"]
    if step is None:
        return unsettled(process, failed)
    measured = steps.get("measured", steps["count"] - 1)
    of = "the first and only one"
    if steps["count"] > 1:
        after = "the first" if measured == steps["count"] - 1 else "its plan had settled"
        of = f"median of {measured} after {after}"
    rate = f"; {samples / step * 1e3:.4g} samples per second" if samples and step else ""
    return f"{milliseconds(step)} modeled ({of}){rate}"


def unsettled(process: dict[str, Any], failed: bool = False) -> str:
    """Why a process that took steps has no time of a step. More steps are no remedy if the program failed."""
    taken = count(process["steps"]["count"], "step")
    advice = "" if failed else ". Let the program take more steps"
    return (
        f"unknown: a budget's first steps differ, and of {taken} no two in a row offloaded and recomputed "
        f"the same bytes{advice}"
    )


def _shares(shares: dict[str, float]) -> str:
    names = {
        "products": "products",
        "attention": "attention",
        "memory_bound": "memory-bound operators",
        "idle": "idle",
    }
    return ", ".join(f"{name} {percent(shares[key])}" for key, name in names.items())


def _copies(copied: dict[str, int], shares: dict[str, float], in_steps: bool) -> str:
    where = "in a step" if in_steps else "in all"
    to_host, to_device = size(copied["to_host_bytes"]), size(copied["to_device_bytes"])
    text = f"{where} {to_host} to the host and {to_device} to the device"
    if not shares:
        return text
    busy = [percent(shares[f"copies_to_{end}"]) for end in ("host", "device")]
    return f"{text}, for {busy[0]} and {busy[1]} of the time"


def model_state(state: dict[str, Any]) -> str:
    """Empty if none of it has left the GPU so far."""
    moved = state["copied_bytes"] or any(of["offloaded_bytes"] for of in state["classes"].values())
    return "; ".join(class_lines(state["classes"])) if moved else ""


def milliseconds(time: float) -> str:
    return span(time * 1e6)


def role(name: str) -> str:
    return name.replace("_", " ")


def blocks(each: dict[str, Any]) -> str:
    """How many, and how large the largest is."""
    if each["blocks"] == 1:
        return "1"
    alike = each["blocks"] * each["largest_block_bytes"] == each["bytes"]
    return f"{each['blocks']}{' of' if alike else ', up to'} {size(each['largest_block_bytes'])}"


def makers(all_of_them: Sequence[dict[str, Any]]) -> list[str]:
    """Each by the fewest lines that distinguish it from the others, if any do."""
    return [
        next(
            (text for text in texts if sum(text in _by_lines(other) for other in all_of_them) == 1),
            texts[0],
        )
        for texts in map(_by_lines, all_of_them)
    ]


def maker(each: dict[str, Any]) -> str:
    """The operator, and the innermost line of the program."""
    return _by_lines(each)[0]


def _by_lines(each: dict[str, Any]) -> list[str]:
    """By the innermost line, the two innermost ones, and so on."""
    operator = each["operator"].removeprefix("aten::")
    lines = each["lines"].split(", ") if each["lines"] else []
    between = ", " if each["lines"].startswith("backward of ") else " at "
    return [
        between.join(part for part in (operator, ", ".join(lines[:count])) if part) or "unknown"
        for count in range(1, max(2, len(lines) + 1))
    ]


def nothing(answer: Answer) -> str:
    why = "the command was killed" if answer.status < 0 else NO_GPU_USED
    return f"spillway: this dry run has no figures, because {why}"
