"""All cases of `make bench-blobsync`, one after the other, on one server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from tests.benchmark.blobsync.bytes_moved import bytes_moved
from tests.benchmark.blobsync.cold_cases import COLD, cold_case
from tests.benchmark.blobsync.entry import Case
from tests.benchmark.blobsync.goals import verdicts
from tests.benchmark.blobsync.kept_cases import KEPT, kept_cases
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.machine import machine
from tests.benchmark.blobsync.runner import Runner
from tests.benchmark.blobsync.sample import Found
from tests.benchmark.blobsync.store_cases import STORE, open_case, readiness_case
from tests.benchmark.blobsync.table import bytes_table, case_table, goal_table, publish_table, time_words

CASES = (*COLD, *KEPT, *STORE, "bytes")


def whole_run(lab: Lab, runner: Runner, wanted: set[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, print tables, and return all figures.

    Args:
        wanted: Some of `CASES`.
    """
    result: dict[str, Any] = {"machine": machine(lab.bench.folder)}
    result["tools"] = {name: tool.version for name, tool in lab.tools.items()}
    bare = lab.side.bare_interpreter()
    say(f"a bare interpreter: {time_words(bare.wall_s)}, {bare.peak_bytes / (1 << 20):.1f} MiB")
    found: dict[str, Found] = {}
    for case in _cases(lab, wanted):
        found[case.name] = runner.run(case)
        say("\n" + case_table(case.title, found[case.name], bare.peak_bytes) + "\n")
    moved = bytes_moved(lab) if lab.ours and "bytes" in wanted else {}
    if moved:
        say("\n" + bytes_table(moved))
    if lab.ours:
        say("\n" + publish_table(lab.sources()))
    goals = verdicts(found, moved, bare.peak_bytes)
    say("\n" + goal_table(goals))
    result["bare_interpreter"] = asdict(bare)
    result["cases"] = {
        case: {name: asdict(series) for name, series in series_of.items()}
        for case, series_of in found.items()
    }
    result["published"] = {
        name: asdict(source.published) | {"uploaded_plain_s": source.uploaded_s}
        for name, source in lab.sources().items()
        if source.published is not None
    }
    result["failed"] = runner.failed
    result["bytes"] = moved
    result["goals"] = [{**asdict(verdict), "outcome": verdict.outcome} for verdict in goals]
    result["machine"]["load_after"] = os.getloadavg()[0]
    return result


def _cases(lab: Lab, wanted: set[str]) -> Iterator[Case]:
    """The cases. Each is made when the previous one is over, because its files take time and disk space."""
    for name in COLD:
        if name in wanted:
            yield cold_case(lab, name)
    if wanted & set(KEPT):
        yield from kept_cases(lab, wanted)
    if not lab.ours:
        return
    if "readiness" in wanted:
        yield readiness_case(lab)
    if "open" in wanted:
        yield open_case(lab)
