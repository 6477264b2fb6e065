# SPDX-License-Identifier: Apache-2.0
"""Pages as a browser draws them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,900")

# Before the page's own script, to catch its errors.
WATCH = """<script>window.problems = []; addEventListener("error", e => problems.push(String(e.message)));
addEventListener("securitypolicyviolation", e => problems.push(e.blockedURI));</script>"""

PROBE = """<script>
addEventListener("load", () => {
  const problems = window.problems;
  const charts = [...document.querySelectorAll("svg")].filter(each => each.checkVisibility());
  const inside = charts.every(chart => [...chart.querySelectorAll("text")].every(text => {
    const box = text.getBoundingClientRect(), around = chart.getBoundingClientRect();
    return box.left >= around.left - 1 && box.right <= around.right + 1 && box.bottom <= around.bottom + 1;
  }));
  const choice = document.querySelector("select");
  const shown = () => [...document.querySelectorAll("[data-step]")].filter(each => !each.hidden)
    .map(each => each.dataset.step).join();
  const first = shown();
  choice.value = "0";
  choice.dispatchEvent(new Event("change"));
  document.title = JSON.stringify({problems, charts: charts.length, inside, first, then: shown(),
    fits: document.documentElement.scrollWidth <= innerWidth});
});
</script>"""


def allowed(script: str) -> str:
    """The element's text as a content security policy names it."""
    text = script.removeprefix("<script>").removesuffix("</script>")
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def drawn(page: Path, folder: Path) -> dict[str, Any]:
    """The state of a copy of the page in `folder` in the browser: errors, how many charts are to be seen,
    whether their words lie inside and the page is no wider than its window, and which step is shown first
    and after the first one was chosen. Skips where there is no browser."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    watched = folder / "watched.html"
    text = page.read_text().replace("script-src ", f"script-src {allowed(WATCH)} {allowed(PROBE)} ", 1)
    text = text.replace("<style>", WATCH + "<style>", 1)
    watched.write_text(text.replace("</body>", PROBE + "</body>", 1))
    command = [program, *OPTIONS, "--virtual-time-budget=5000", "--dump-dom", watched.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    said: dict[str, Any] = json.loads(unescape(title[1]))
    return said
