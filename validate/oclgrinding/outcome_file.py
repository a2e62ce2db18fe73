"""A pytest plugin: what becomes of each test is written to a file at once, a line of
JSON each, because a time limit or a crash may end the process.

What tests and drivers print may stand anywhere in pytest's own lines.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="file that gets a line an event")


class _Writer:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, test: str, event: str, reason: str = "") -> None:
        line = {"test": test, "event": event, "reason": reason, "time": time.time()}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(nodeid, "started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            self.write(report.nodeid, "failed", text.strip().partition("\n")[0])
        elif report.skipped or report.when == "call":
            self.write(report.nodeid, report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.write(nodeid, "ended")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.outcomes:
        config.pluginmanager.register(_Writer(config.option.outcomes))
