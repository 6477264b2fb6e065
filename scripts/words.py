# SPDX-License-Identifier: Apache-2.0
"""Finds words of a private dialect, for which the field has terms, in all tracked texts.

Usage: python scripts/words.py [FILE…]

A phrase is found over line breaks and in identifiers as well: `give back`, `give_back`, `GiveBack`. Exit
status: 0 without findings, 1 with some. EXCEPTIONS states why a finding is right where it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: A phrase, and what to write instead.
BANNED = {
    "all the same": "anyway",
    "anew": "again",
    "arms?": "variant, configuration",
    "as a pencil says": "computed by hand",
    "at hand": "available",
    "at its most": "at its peak, at the limit",
    "at the moment when": "at the peak, when",
    "at the turn|turn of a step|turn of the step": "at the forward-backward boundary",
    "before the turn|after the turn|until the turn|from the turn|the turn's": "forward-backward boundary",
    "books": "accounting, counters",
    "brings? back": "fetch; ahead of need: prefetch",
    "brought back": "fetched",
    "bytes held|held bytes|held memory|memory held": "reserved bytes",
    "bytes live|live bytes|live blocks?|live memory|live storages?|live tensors?": "allocated",
    "bytes moved|moved bytes|moved storages?|moves? away|moved away": "offloaded bytes, is offloaded",
    "cheap first": "cheapest first",
    "comes? back": "is fetched, is restored",
    "computed? again": "recompute",
    "computing again": "recomputing",
    "dear|dearer|dearest": "expensive",
    "doors?": "entry point, interface",
    "comes? to|came to": "is, reaches, results in",
    "ever new": "new",
    "for ever": "indefinitely",
    "foretold|foretells?": "predicted",
    "gave back|gave it back|gave them back": "released",
    "given back": "released",
    "gives? back|gives? it back|gives? them back": "release, free; of a function: return",
    "give roles?": "set roles",
    "goes by": "follows, reads",
    "has no account": "is not counted",
    "hook came|hook gone": "saved-tensor handle",
    "in the way": "a conflict, a problem",
    "in vain": "needlessly",
    "is away|are away|was away|were away": "is offloaded",
    "is thought|are thought": "is predicted",
    "is wanted|are wanted|was wanted|were wanted|wanted again": "on demand, at its first use",
    "knows of": "uses, detects",
    "lacking": "missing",
    "lets? go": "release",
    "letting go": "releasing",
    "made again": "recreated, recomputed",
    "made a report|report was made|reports? (?:is|are|were) made": "reports a race",
    "makes? again": "recreate, recompute",
    "mend|mends|mended": "fix",
    "moves? to the host|moved to the host": "offload, is offloaded",
    "nobody|somebody|whoever": "the thread, stream, caller or owner that it is",
    "not hoped for": "checked",
    "of account": "relevant",
    "of its own accord": "by itself",
    "plan replayed": "replayed allocations",
    "percent of the limit|η": "optimality (bound ÷ measured time); overlap",
    "pieces apart": "fragmented",
    "place in a step|place of a step|places? in the step|places? of the step": "event index, time slot",
    "quicker|quickest": "faster, fastest",
    "rebuilds? a tensor|rebuilds? the tensor|rebuilt tensors?": "recompute",
    "all it said|is said|are said|said again": "is logged, is reported",
    "said so|says so|say so|saying so|says of|said of": "reports, is marked, names",
    "saves instead": "saves a substitute",
    "says": "returns, reports, logs, prints, documents",
    "so long": "this long",
    "so many": "this many, N",
    "so much": "this much",
    "stays? away|goes? away|went away|gone away": "is offloaded, is released",
    "tail of a step|tail of the step|the step's tail|tails keep": "optimizer phase",
    "takes? the place|took the place": "replaces",
    "told|tells?|telling|tellers?": "reports, logs, notifies, returns",
    "twins?": "counterpart",
    "ways? back": "fetch",
    "the turn|a turn": "forward-backward boundary",
    "what becomes of|what comes of": "the result of",
    "what could move": "offloadable bytes",
    "what it came to|what it comes to": "its result",
    "what lies between blocks": "fragmentation",
    "what moved|what moves": "offloaded bytes, offloaded storages",
    "whole numbers?": "integer",
    "centr[e]d|colou[r]s?|model[l]ed|model[l]ing|neighbou[r]s?|neighbou[r]ing": "the American spelling",
}
#: (file, phrase): why the phrase is right there. At most 20.
EXCEPTIONS = {
    ("docs/glossary.md", ""): "lists the words beside the terms",
    ("scripts/words.py", ""): "the list itself",
    ("tests/python/test_words.py", ""): "examples of findings",
}
SEPARATOR = r"(?:[ _]|\s*\n[ \t]*(?:///?|#+:?|\*)?[ \t]*)"
SKIPPED = (".png", ".json", ".svg", "LICENSE")


def pattern() -> re.Pattern[str]:
    phrases = (SEPARATOR.join(phrase.split(" ")) for group in BANNED for phrase in group.split("|"))
    return re.compile(rf"(?<![a-z])(?:{'|'.join(phrases)})(?![a-z])", re.IGNORECASE)


def words_apart(text: str) -> str:
    """The text with spaces between the words of CamelCase."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)


def findings(files: list[str]) -> list[str]:
    found, used = [], pattern()
    for name in files:
        path = Path(name)
        if name.endswith(SKIPPED) or not path.is_file() or (name, "") in EXCEPTIONS:
            continue
        try:
            text = words_apart(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        for match in used.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            phrase = re.sub(r"[\s_/#*]+", " ", match[0])
            if (name, phrase.lower()) not in EXCEPTIONS:
                found.append(f"{name}:{line}: {phrase!r}: {instead(phrase)}")
    return found


def instead(phrase: str) -> str:
    for banned, term in BANNED.items():
        if re.fullmatch(banned, phrase, re.IGNORECASE):
            return f"write {term}"
    return "write the field's term"


def main() -> int:
    files = sys.argv[1:] or subprocess.check_output(["git", "ls-files"], text=True).splitlines()
    found = findings(files)
    print("\n".join(found)) if found else None
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
