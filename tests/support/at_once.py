# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest (`-p at_once`): writes each failure into the file $FAILURES at once, so that the
failures of a run that is stopped are known."""

import os


def pytest_runtest_logreport(report):
    # With pytest-xdist this is called where tests run, and again where they are gathered.
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["FAILURES"], "a") as file:
            file.write(f"=== {report.nodeid} ({report.when})\n{report.longreprtext}\n\n")
