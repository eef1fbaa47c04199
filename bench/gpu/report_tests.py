"""A plugin of pytest that writes a line of JSON for each finished test, so that a run that is cut short has results."""

from __future__ import annotations

import json
from typing import Any

FILE = "--report-tests"


def pytest_addoption(parser: Any) -> None:
    parser.addoption(FILE, default=None)


def pytest_configure(config: Any) -> None:
    if not hasattr(config, "workerinput") and config.getoption(FILE):  # xdist's controller hears of all tests
        config.pluginmanager.register(Reporter(config.getoption(FILE)))


class Reporter:
    def __init__(self, path: str) -> None:
        self.path = path

    def note(self, outcome: str, name: str, words: str = "") -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps([outcome, name, words]) + "\n")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.note("failed", report.nodeid, last_line(report))
        elif report.skipped or report.when == "call":
            self.note(report.outcome, report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.note("failed", report.nodeid, last_line(report))


def last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return next((line for line in text.splitlines() if line.strip()), "")[:300]
