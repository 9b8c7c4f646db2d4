"""The slowest files of tests, which `make test` begins with, so that it does not end with one long file.

Each worker of xdist reads all files, and begins at another place than the others, so that each file is
compiled once.

A plug-in of `tests/conftest.py`. `make slow-files` writes the table from the report of the last `make test`.
Files that are not in the table begin after those that are.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

TABLE = Path(__file__).with_suffix(".json")
"""Seconds of each slow file, by its path below `tests/`."""
SLOW_S = 5


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin at another place of a folder."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Dir) and report.result:
        number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        first = len(report.result) * number // workers
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files by their recorded time, then by name, if xdist's workers run them."""
    if hasattr(config, "workerinput"):
        known = json.loads(TABLE.read_text())
        names = {path: path.relative_to(TABLE.parent).as_posix() for path in {item.path for item in items}}
        items.sort(key=lambda item: (-known.get(names[item.path], 0), names[item.path]))


def record(report: Path) -> None:
    """Take the times of a JUnit report into the table; times of files that it does not name stay."""
    took: Counter[str] = Counter()
    for case in ET.parse(report).iter("testcase"):
        took[f"{case.attrib['classname'].removeprefix('tests.').replace('.', '/')}.py"] += float(
            case.attrib["time"]
        )
    known = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    slow = {
        name: seconds
        for name, seconds in (known | {name: round(seconds) for name, seconds in took.items()}).items()
        if seconds >= SLOW_S and (TABLE.parent / name).exists()
    }
    TABLE.write_text(
        json.dumps(dict(sorted(slow.items(), key=lambda slow: (-slow[1], slow[0]))), indent=1) + "\n"
    )


if __name__ == "__main__":
    record(Path(sys.argv[1]))
