# SPDX-License-Identifier: Apache-2.0
"""Usage: tidy.py FOLDER JOBS ARGUMENTS…

Runs clang-tidy-14 with ARGUMENTS over the C++ sources of FOLDER/compile_commands.json; prints what it finds,
and ends with 1 if there is anything.

Nearly all of the time that clang-tidy takes for one source goes into what the source includes. So sources
of one folder are first looked at together: behind one another in one file, headers once. Where anything is
found, the sources that it was found in are looked at alone, and what is found there counts; all of them,
where they do not compile together. Sources whose names meet, that leave macros defined, or that define
functions by a macro under C names, do not go together. Shadowed names are the compiler's to report, because
names of several sources meet here. Command lines may differ in where headers are looked for, and in what only
concerns linking.
"""

import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOGETHER = 32
#: Options of a command that change nothing of what clang-tidy sees.
OF_LINKING = re.compile(
    r" -(?:D\w+_EXPORTS|f(?:PIC|PIE|visibility\S*|no-semantic-interposition|tls-model=\S+))(?= )"
)
HEADERS = re.compile(r" (-I\S+|-isystem \S+)")
DEFINED = re.compile(r"^ *#(define|undef) +(\w+)", re.MULTILINE)
INCLUDE = re.compile(r'#include ([<"][\w/.+-]+[>"])')
#: Functions that each program has get names of their own.
OF_EACH_PROGRAM = re.compile(r"\b(main|register_benchmarks)\(")
NAMED = re.compile(
    r"^(?:__attribute__\S* )?(?:(?:class|struct|union|enum class|enum|concept|using) (\w+)"
    r"|[\w:<>,&*\[\] ]*?(?<!:)\b(\w+) ?(?:\(|=|\{|;|\[))"
)


def names_of(text):
    """What a source declares outside of functions and classes; a macro's use is no name."""
    found = [
        NAMED.match(line)
        for line in text.splitlines()
        if re.match(r"(?!namespace|using (?!\w+ =)|[A-Z_]+\()\w", line)
    ]
    names = {match[1] or match[2] for match in found if match} - {None}
    return {name for name in names if not OF_EACH_PROGRAM.match(f"{name}(")}


def stands_alone(text):
    defined = DEFINED.findall(text)
    declares = re.search(r'^#define .*\\\n *extern "C"', text, re.MULTILINE)
    return declares or any(
        defined.count(("undef", name)) < defined.count(("define", name)) for _, name in defined
    )


def settings_of(source):
    """The nearest .clang-tidy."""
    return next(each / ".clang-tidy" for each in Path(source).parents if (each / ".clang-tidy").exists())


class Batch:
    def __init__(self, key):
        self.key, self.sources, self.names, self.included = key, [], set(), set()
        self.headers, self.lines, self.origin = {}, [], []

    def takes(self, names):
        return len(self.sources) < TOGETHER and not (self.names & names)

    @property
    def command(self):
        return " ".join([self.key[0], *self.headers])

    def add(self, source, text, names, folders):
        self.headers |= dict.fromkeys(folders)
        headers = [match[1] for match in map(INCLUDE.match, text.splitlines()) if match]
        for line in text.splitlines():
            match = INCLUDE.match(line)
            # Twice in one source is a finding, and lists are included for what they are each time.
            again = match and match[1] in self.included and headers.count(match[1]) == 1
            line = OF_EACH_PROGRAM.sub(rf"\1_{len(self.sources)}(", line)
            self.lines.append("" if again and match[1][-3:-1] != "nc" else line)
            self.origin.append(source)
        self.included |= set(headers)
        self.names |= names
        self.sources.append(source)


def batches_of(commands):
    made, alone = [], []
    for source, command in commands:
        text = Path(source).read_text()
        names = names_of(text)
        command = OF_LINKING.sub("", re.sub(r" -o .*", "", command))
        key = HEADERS.sub("", command), settings_of(source), Path(source).relative_to(ROOT).parts[0]
        fitting = (one for one in made if one.key == key and one.takes(names))
        is_alone = stands_alone(text)
        batch = None if is_alone else next(fitting, None)
        if batch is None:
            batch = Batch(key)
            (alone if is_alone else made).append(batch)
        batch.add(source, text, names, HEADERS.findall(command))
    return made + alone


def tidy(folder, arguments, source):
    command = ["clang-tidy-14", "-p", str(folder), "-quiet", *arguments, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def suspects(folder, arguments, batch, place):
    """The sources of a batch that clang-tidy reports."""
    if len(batch.sources) == 1:
        return batch.sources
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(batch.lines) + "\n")
    (place.parent / ".clang-tidy").write_text(batch.key[1].read_text())
    done = tidy(folder, arguments, place)
    if done.returncode == 0:
        return []
    at = re.findall(r"^(\S+):(\d+):\d+: (?:warning|error): ", done.stdout, re.MULTILINE)
    if not at or "clang-diagnostic-error" in done.stdout or any(name != str(place) for name, _ in at):
        return batch.sources
    return sorted({batch.origin[int(line) - 1] for _, line in at})


def findings(folder, arguments, batch, place):
    """The findings of clang-tidy in a batch of sources, each by itself; empty without findings."""
    each = [tidy(folder, arguments, source) for source in suspects(folder, arguments, batch, place)]
    return "".join(done.stdout or done.stderr for done in each if done.returncode)


def main():
    folder, jobs, arguments = Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3:]
    database = json.loads((folder / "compile_commands.json").read_text())
    commands = sorted({(e["file"], e["command"]) for e in database if e["file"].endswith(".cpp")})
    batches = batches_of(commands)
    together = folder / "together"
    together.mkdir(exist_ok=True)
    places = [together / str(number) / "all.cpp" for number in range(len(batches))]
    entries = [
        {
            "directory": str(folder),
            "file": str(place),
            "command": f"{batch.command} -c {shlex.quote(str(place))}",
        }
        for batch, place in zip(batches, places, strict=True)
    ]
    (together / "compile_commands.json").write_text(json.dumps([*entries, *database]))
    # The largest first, so that none is waited for at the end.
    order = sorted(zip(batches, places, strict=True), key=lambda each: -len(each[0].lines))
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda each: findings(together, arguments, *each), order))
    print("".join(found), end="")
    sys.exit(1 if any(found) else 0)


if __name__ == "__main__":
    main()
