# SPDX-License-Identifier: Apache-2.0
"""The report in a few lines, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.report import model_state, plans, words
from spillway.report.digests import Digest
from spillway.report.sizes import count, percent, size, span

__all__ = ["show"]


def show(digests: Sequence[Digest], console: Console) -> None:
    for each in digests:
        console.print(Text.assemble((each.log.name, "bold"), f", {count(len(each.log.steps), 'step')}"))
        for notice in words.notices(each):
            console.print(notice, style="yellow", highlight=False, markup=False)
        for fact in words.facts(each):
            console.print(f" • {fact}", highlight=False, markup=False)
        for plan in plans.plans_of(each.log):
            console.print(f" • {plans.facts(plan)}", highlight=False, markup=False)
        for fact in model_state.facts(each.log):
            console.print(f" • {fact}", highlight=False, markup=False)
        if each.regions:
            console.print(_regions(each))


def _regions(each: Digest) -> Table:
    table = Table(title="Offloaded bytes by region", title_justify="left")
    table.add_column("region")
    for name in ("offloadable", "offloaded", "share", "stalls", "stalled"):
        table.add_column(name, justify="right")
    for tag in sorted({*each.regions, *each.copies.tags}):
        sums, costs = each.regions.get(tag), each.copies.tags.get(tag)
        table.add_row(
            Text(tag or "(no tag)"),
            size(sums["offloadable"]) if sums else "–",
            size(sums["offloaded"]) if sums else "–",
            percent(sums["offloaded"] / sums["offloadable"]) if sums and sums["offloadable"] else "–",
            str(costs.stalls if costs else 0),
            span(costs.stalled if costs else 0),
        )
    return table
