# SPDX-License-Identifier: Apache-2.0
"""The sentences of a report, on the page and in the terminal."""

from __future__ import annotations

import datetime

from spillway.cannot_help import REASONS as REASONS_FOR_PEAK
from spillway.cannot_help import text
from spillway.report.copies import Site
from spillway.report.digests import REASONS, Digest
from spillway.report.log import RunLog
from spillway.report.memory import Usage
from spillway.report.plans import plans_of
from spillway.report.sizes import count, percent, size, span

__all__ = ["at_peak", "costs_of", "facts", "lines", "makers", "notices", "when"]

_MOST_RUNS = 5


def notices(each: Digest) -> list[str]:
    """Notes that a reader needs before the figures."""
    found = []
    if each.log.earlier_runs:
        found.append(_earlier(each.log.earlier_runs))
    if each.log.about.get("shape_only"):
        found.append(
            "This is a dry run: nothing was computed. Sizes are what a GPU would need. Times are modeled "
            "and not compared with hardware."
        )
    elif each.log.emulated:
        found.append(
            "This run used the emulated GPU. Sizes are what a GPU would need. Times were measured on "
            f"{each.times_of}; they do not predict a GPU."
        )
    if not each.log.complete:
        found.append(
            "This run is unfinished: it is still running, or its process ended without a regular exit of the "
            "interpreter. The report covers the events recorded so far."
        )
    if each.log.detailed_until is not None:
        found.append(
            f"Single events were written for the first {span(each.log.detailed_until)} of the run only: "
            "copies, stalls, charts, and memory by tag are of that time. The peak of device memory, pinned "
            "memory, offloaded bytes by region, and resident storages are of all of the run."
        )
    if each.log.about.get("allocator") != "spillway":
        found.append(
            f"Device memory came from the allocator '{each.log.about.get('allocator')}', which has no tags."
        )
    return found


def when(log: RunLog) -> str:
    """The moment at which it began, of this machine's time zone."""
    return datetime.datetime.fromtimestamp(log.started).strftime("%Y-%m-%d %H:%M:%S")


def _earlier(runs: list[list[RunLog]]) -> str:
    """The newest first."""
    said = []
    for run in runs[: -_MOST_RUNS - 1 : -1]:
        more = f" and {len(run) - 1} more" if len(run) > 1 else ""
        said.append(f"{when(run[0])}, {run[0].command} ({run[0].path.name}{more})")
    more = f"; and {len(runs) - _MOST_RUNS} before" if len(runs) > _MOST_RUNS else ""
    return (
        f"This is the newest run. The folder also holds the logs of {count(len(runs), 'earlier run')}: "
        f"{'; '.join(said)}{more}. To see one of them, move its files to a folder of their own."
    )


def facts(each: Digest) -> list[str]:
    copies = each.copies
    when = f", {_first(each)}" if each.log.detailed_until is not None else ""
    found = [_peak(each, usage) for usage in each.usage.values()] or [_peak(each, each.first)]
    found += _cannot_help(each.log)
    if each.sites:
        found.append(_largest(each.sites[0]))
    if copies.copy_time:
        found.append(
            f"{size(copies.all.out_bytes)} was copied to the host and {size(copies.all.in_bytes)} was "
            f"fetched. Copies took {span(copies.copy_time)}, of which {percent(copies.hidden_share)} was "
            f"hidden behind computation{when}."
        )
        waits = ", ".join(
            f"{span(time)} for {why}" for why, time in sorted(copies.stalled_for.items(), key=lambda i: -i[1])
        )
        found.append(
            f"Computation stalled {count(copies.all.stalls, 'time')}, {span(copies.all.stalled)} in all{when}"
            + (f": {waits}." if waits else ".")
        )
    else:
        found.append(f"Nothing was copied{when}.")
    found.append(f"Peak of pinned host memory: {size(each.pinned_peak)} ({each.pinned_peak} bytes).")
    if each.skipped:
        found.append(_skipped(each.skipped))
    return found


def _cannot_help(log: RunLog) -> list[str]:
    """Why offloading did not lower the peak, if that is so."""
    why: dict[str, int] = (log.last or {}).get("cannot_help", {})
    return [f"{text(reason, amount)}." for reason, amount in why.items() if reason in REASONS_FOR_PEAK[1:]]


def _skipped(skipped: dict[str, dict[str, int]]) -> str:
    total = sum(kept["bytes"] for kept in skipped.values())
    reason = max(skipped, key=lambda reason: skipped[reason]["bytes"])
    most = skipped[reason]["bytes"]
    return (
        f"Over all steps, {size(total)} of saved tensors stayed on the device; the "
        f'main reason, for {size(most)}, is "{REASONS.get(reason, reason)}".'
    )


def _peak(each: Digest, usage: Usage) -> str:
    of = f" of GPU {usage.index}" if len(each.usage) > 1 else ""
    peak = f"Peak of device memory{of}: {size(usage.most)} ({usage.most} bytes)"
    without = f"{size(usage.most_without)} ({usage.most_without} bytes)"
    if each.log.detailed_until is None:
        return (
            f"{peak}. Without offload it would have been {without}: the peak of device memory "
            f"plus offloaded bytes.{_not_in_it(each)}"
        )
    where = f"{_first(each)}; later steps had no higher peak by their statistics"
    if usage.later_peak:
        where = f"by the statistics of later steps; {_first(each)} it was {size(usage.peak.device)}"
    return (
        f"{peak}, {where}. Without offload it would have been at least {without}: offloaded bytes are known "
        f"only {_first(each)}."
    )


def _not_in_it(each: Digest) -> str:
    if not any(plan.chosen.recomputed for plan in plans_of(each.log)):
        return ""
    return " Recomputed storages are not included."


def _first(each: Digest) -> str:
    return f"in the first {span(each.log.detailed_until or 0)}"


def costs_of(each: Digest) -> str:
    """The steps that the costs by region cover."""
    if each.log.detailed_until is None:
        return "Over all steps."
    return f"Offloadable and offloaded bytes are of all steps, everything else {_first(each)}."


def _largest(site: Site) -> str:
    costs = site.costs
    where = f"tag {site.memory}" if site.memory else "untagged"
    made = f"made by {makers(site)}" if site.made_by else "operator unknown"
    source = f"{where}, {made}" + (f", saved at {lines(site)}" if site.lines else "")
    return (
        f"The largest offloaded storage: {size(site.bytes)} ({site.bytes} bytes), {source}. It was offloaded "
        f"{count(site.times, 'time')} and cost {span(costs.out_time)} of copies out, "
        f"{span(costs.in_time)} of copies in and {span(costs.stalled)} of stalls."
    )


def makers(site: Site) -> str:
    return ", ".join(site.made_by[:3]) + (" …" if len(site.made_by) > 3 else "") or "unknown"


def lines(site: Site) -> str:
    """The end of each path, which suffices to find it."""
    short = [_short(line) for line in site.lines]
    return ", ".join(short[:2]) + (f" and {len(short) - 2} more" if len(short) > 2 else "")


def _short(line: str) -> str:
    path, _, function = line.partition(" ")
    return "/".join(path.split("/")[-2:]) + (f" in {function}" if function else "")


def at_peak(usage: Usage) -> str:
    ranked = sorted(usage.peak.tags.items(), key=lambda item: (-item[1], item[0]))
    first = ", ".join(f"{tag or '(untagged)'} {size(allocated)}" for tag, allocated in ranked[:5])
    rest = f" and {len(ranked) - 5} more" if len(ranked) > 5 else ""
    peak = size(usage.peak.device)
    when = f"At the peak of the detailed steps, {peak}," if usage.later_peak else f"At the peak of {peak}"
    return f"{when} the device held {first}{rest}; {size(usage.peak.offloaded)} was offloaded."
