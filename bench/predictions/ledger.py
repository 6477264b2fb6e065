# SPDX-License-Identifier: Apache-2.0
"""predictions.json: what dry runs predicted before it was measured, and the errors."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench.predictions.cases import CASES, RATIOS, Case
from bench.results import GIB, RESULTS, markdown

LEDGER = Path(__file__).with_name("predictions.json")
# What scripts/gpu_check has found on GPUs of ours, a file each; of a case the latest counts.
ON_GPUS = RESULTS / "gpu"
# What a prediction is, and what making it took of the machine that it ran on.
KEPT = ("peak_bytes", "peak_reserved_bytes", "step_ms", "tokens_per_second")
HERE = ("wall_seconds", "host_bytes")


def read(path: Path = LEDGER) -> dict[str, Any]:
    return json.loads(path.read_text())


def measured() -> dict[str, dict[str, Any]]:
    """By case: what its step took and used on a GPU of ours."""
    found = {}
    for path in sorted(ON_GPUS.glob("*.json")):
        for case, row in json.loads(path.read_text()).get("predictions", {}).items():
            if "measured" in row:
                found[case] = row["measured"]
    return found


def error(predicted: float, true: float) -> float:
    """In percent of the truth."""
    return 100 * (predicted / true - 1)


def memory_errors(predictions: dict[str, Any]) -> dict[str, float]:
    """By case, of peaks that are published."""
    return {
        case.name: error(predictions[case.name]["peak_bytes"] / GIB, case.published.peak_gib)
        for case in CASES
        if case.published is not None and case.published.peak_gib is not None and case.name in predictions
    }


def time_errors(predictions: dict[str, Any]) -> dict[str, float]:
    """By case, of rates that are published."""
    return {
        case.name: error(predictions[case.name]["tokens_per_second"], case.published.tokens_per_second)
        for case in CASES
        if case.published is not None
        and case.published.tokens_per_second is not None
        and case.name in predictions
    }


def ratios(predictions: dict[str, Any]) -> list[tuple[str, float, float]]:
    """By name: of times that are published, and of those that are predicted."""
    published = {case.name: case.published for case in CASES if case.published is not None}
    return [
        (
            name,
            published[faster].tokens_per_second / published[slower].tokens_per_second,
            predictions[faster]["tokens_per_second"] / predictions[slower]["tokens_per_second"],
        )
        for name, slower, faster in RATIOS
        if slower in predictions and faster in predictions
    ]


def middle(errors: dict[str, float]) -> str:
    """The median of their sizes, in words."""
    count = len(errors)
    rows = f"{count} published row" + ("" if count == 1 else "s")
    return f"{median(abs(each) for each in errors.values()):.1f} % ({rows})"


def summary(ledger: dict[str, Any]) -> str:
    """The errors in one paragraph: of memory, of eager programs' times, and of compiled ones'."""
    predictions = ledger["predictions"]
    is_compiled = {case.name: case.compiled for case in CASES}
    eager, compiled = (
        {name: each for name, each in time_errors(predictions).items() if is_compiled[name] is kind}
        for kind in (False, True)
    )
    torch = ledger["versions"]["torch"]
    found = [
        f"of peak memory {middle(memory_errors(predictions))}",
        f"of tokens a second of eager programs {middle(eager)}",
        f"of compiled ones, whose kernels are modeled, {middle(compiled)}",
    ]
    return (
        f"Predicted on {ledger['date']} with torch {torch}. Median error {', '.join(found)}. {ours(ledger)}"
    )


def ours(ledger: dict[str, Any]) -> str:
    """How near the predictions were on GPUs of ours."""
    predictions = ledger["predictions"]
    found = {case: row for case, row in measured().items() if case in predictions}
    if not found:
        return "Not yet compared with hardware of ours."
    devices = " and ".join(sorted({row["device"] for row in found.values()}))
    memory, rate = (
        median(abs(error(predictions[case][name], row[name])) for case, row in found.items())
        for name in ("peak_bytes", "tokens_per_second")
    )
    return (
        f"On a {devices} of ours (median of {len(found)} cases): of peak memory {memory:.1f} %, of tokens a "
        f"second {rate:.1f} %."
    )


def here(ledger: dict[str, Any]) -> str:
    """What the predictions took at most."""
    took = [each["here"] for each in ledger["predictions"].values()]
    seconds, used = (max(each[name] for each in took) for name in HERE)
    return (
        f"On the {ledger['cores']} cores where they were made a step took {seconds:.1f} s at most, and a "
        f"process {used / GIB:.1f} GiB of the host's memory."
    )


def details(ledger: dict[str, Any]) -> list[str]:
    """The ledger case by case, as docs/dry_run.md shows it."""
    predictions, on_gpus = ledger["predictions"], measured()
    rows = [_row(case, predictions[case.name], on_gpus) for case in CASES if case.name in predictions]
    sources = sorted({case.published.source for case in CASES if case.published is not None})
    return [
        f"{summary(ledger)} {here(ledger)}",
        "",
        *markdown(
            ("time of", "published", "predicted"),
            ((name, f"{known:.3f}", f"{found:.3f}") for name, known, found in ratios(predictions)),
        ),
        "",
        *markdown(
            ("case", "profile", "code", "peak GiB", "published", "error", "tokens/s", "published", "error"),
            rows,
        ),
        "",
        *(f"Published: {source}." for source in sources),
    ]


def _row(case: Case, found: dict[str, Any], on_gpus: dict[str, dict[str, Any]]) -> list[str]:
    """The case, and for memory and rate: predicted, published or measured, the error."""
    known, seen = case.published, on_gpus.get(case.name)
    cells = [case.name, case.profile, "compiled" if case.compiled else "eager"]
    for name, attribute, shown, scale in (
        ("peak_bytes", "peak_gib", ".2f", GIB),
        ("tokens_per_second", "tokens_per_second", "", 1),
    ):
        predicted = found[name] / scale if scale > 1 else found[name]
        cells.append(f"{predicted:{shown}}")
        published = getattr(known, attribute, None)
        if known is None and seen is not None:
            true = seen[name] / scale if scale > 1 else seen[name]
            cells += [f"{true:{shown}} (measured)", f"{round(error(predicted, true), 1) + 0.0:+.1f} %"]
        elif known is None:
            cells += ["not yet compared", ""]
        elif published is None:
            cells += ["not published", ""]
        else:
            cells += [f"{published}", f"{error(predicted, published):+.1f} %"]
    return cells
