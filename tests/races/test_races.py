# SPDX-License-Identifier: Apache-2.0
"""Every known race is named, whatever the schedule; the fixed programs are silent."""

import json
import re

import pytest
from races import RACES

SHOW = "import json, races; print('seen:' + json.dumps(races.run_all()))"


@pytest.fixture(scope="module", params=["eager", "late", "shuffled:7"])
def seen(request, checked):
    done = checked("-c", SHOW, schedule=request.param)
    assert done.returncode == 3, done.stdout + done.stderr
    return json.loads(done.stdout.rpartition("seen:")[2])


@pytest.mark.parametrize("name", RACES)
def test_the_race_is_named(seen, name):
    reports = seen[f"{name} racy"]
    assert len(reports) == 1, reports
    first = reports[0].splitlines()[0]
    assert first.startswith("spillway-check: unordered ")
    assert set(re.findall(r'"([^"]+)" on ', first)) == RACES[name].operations


@pytest.mark.parametrize("name", RACES)
def test_the_fixed_program_is_silent(seen, name):
    assert seen[f"{name} fixed"] == []
