"""Measures the time from a request to start a run to the first line of its code, stage by stage.

`python -m tests.benchmark.tasks.starts [--before REV] [--runs 100]`. A stack starts runs of one pooled task
over the API, one after the other. Stages end at the times of nodes in ZooKeeper's transaction log (whole
milliseconds), of lines in the scheduler's log, and of the task's own mark: all from this machine's clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.benchmark.engine.revision import Revision, checkout_of, this_checkout
from tests.benchmark.engine.transaction_log import entries
from tests.benchmark.leader.figures import fsync_ms, percentile
from tests.benchmark.tasks.marks import count_ends, read_marks
from tests.benchmark.tasks.ours import Ask, OurStack, our_stack, until
from tests.benchmark.tasks.shapes import task_document
from tests.benchmark.tasks.usage import cpu_s

TOTAL, ANSWER, CPU = "request to first line", "answer of the API", "CPU of a run"
COMMAND, ASKED, ORDER, CLAIM, FIRST_LINE = (
    "command node",
    "first turn",
    "run and order",
    "claim",
    "first line",
)
STAGES = (COMMAND, ASKED, ORDER, CLAIM, FIRST_LINE)
"""Each begins where the one before ends. The leader has a first turn only if it builds the run elsewhere."""
_NODES = (
    (ORDER, re.compile(r"/nimbus/assignments/[^/]+/(?P<run>[^/]+)\.only\.1")),
    (CLAIM, re.compile(r"/nimbus/attempts/(?P<run>[^/]+)\.only\.1/claim")),
)
_COMMAND = re.compile(r"/nimbus/commands/cmd-")
_ASKED = re.compile(r"^(\S+) .* run_building_started .* run=(\S+)$", re.MULTILINE)
_ARGUMENTS = ("{{ ds }}", "{{ run.id }}/{{ pipeline.name }}")


def main(words: list[str] | None = None) -> int:
    """Run the benchmark, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.tasks.starts", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument(
        "--pause-ms", type=float, default=200, help="from the end of a run to the next request"
    )
    parser.add_argument("--before", metavar="REV", help="a commit to measure in the same minutes, in turns")
    parser.add_argument("--turns", type=int, default=4, help="how often the commits take turns")
    parser.add_argument("--data", type=Path, default=Path("build"), help="folder for all data")
    parser.add_argument("--json", type=Path, default=Path("build/bench-starts.json"))
    options = parser.parse_args(words)
    options.data.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="bench-starts-", dir=options.data.absolute()))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        revisions = [this_checkout()]
        if options.before is not None:
            revisions.insert(0, stack.enter_context(checkout_of(options.before, place)))
        found = _measured(revisions, place, options)
        durable = fsync_ms(place)
    sys.stdout.write(_table(found, durable["p50"]))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"fsync_ms": durable, "ms": found}, indent=1))
    return 0


def _measured(
    revisions: Sequence[Revision], place: Path, options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Durations in ms of each stage, by commit."""
    each = max(1, options.runs // options.turns)
    with contextlib.ExitStack() as open_stacks:
        stacks = {of.label: open_stacks.enter_context(our_stack(of, place, Ask())) for of in revisions}
        marks = {label: place / f"marks-{label}" for label in stacks}
        starts: dict[str, list[_Start]] = {label: [] for label in stacks}
        used: dict[str, list[float]] = {label: [] for label in stacks}
        for label, stack in stacks.items():
            stack.start()
            stack.publish("start", {"only": _task(marks[label])})
        for turn in range(options.turns + 1):  # the first one warms up
            for label, stack in stacks.items():
                before_s = sum(cpu_s(stack.pid).values())
                made = [_started(stack, marks[label], options.pause_ms / 1000) for _ in range(each)]
                if turn:
                    starts[label] += made
                    used[label].append((sum(cpu_s(stack.pid).values()) - before_s) * 1000 / each)
        return {
            label: {**_stages(stack.folder, marks[label], starts[label]), CPU: used[label]}
            for label, stack in stacks.items()
        }


def _task(marks: Path) -> dict[str, object]:
    return {**task_document(marks, []), "args": [str(marks), "0", "0", *_ARGUMENTS]}


class _Start(NamedTuple):
    run: str
    asked_ms: float
    """The wall clock before the request."""
    answer_ms: float


def _started(stack: OurStack, marks: Path, pause_s: float) -> _Start:
    """Start a run, wait for its end, and pause."""
    before = count_ends(marks)
    asked_ms, began_s = time.time() * 1000, time.monotonic()
    run = stack.post("/runs", {"pipeline": "start"})["run_id"]
    answer_ms = (time.monotonic() - began_s) * 1000
    until(f"the end of run {run}", 60, lambda: count_ends(marks) > before)
    stack.ended(run, 60)
    time.sleep(pause_s)
    return _Start(run, asked_ms, answer_ms)


def _stages(folder: Path, marks: Path, starts: Sequence[_Start]) -> dict[str, list[float]]:
    times: dict[str, dict[str, float]] = {start.run: {} for start in starts}
    log = (folder / "scheduler-1" / "scheduler.log").read_text()
    asked = [(ASKED, run, datetime.fromisoformat(at).timestamp() * 1000) for at, run in _ASKED.findall(log)]
    seen = [(FIRST_LINE, mark.run, mark.at_ns / 1e6) for mark in read_marks(marks) if mark.what == "start"]
    for stage, run, at_ms in (*_written(folder, starts), *asked, *seen):
        if run in times:
            times[run].setdefault(stage, at_ms)
    found: dict[str, list[float]] = {name: [] for name in (TOTAL, ANSWER, *STAGES)}
    for start in starts:
        found[ANSWER].append(start.answer_ms)
        found[TOTAL].append(times[start.run][FIRST_LINE] - start.asked_ms)
        last = start.asked_ms
        for stage in STAGES:
            if stage in times[start.run]:
                found[stage].append(times[start.run][stage] - last)
                last = times[start.run][stage]
    return {stage: values for stage, values in found.items() if values}


def _written(folder: Path, starts: Sequence[_Start]) -> Iterator[tuple[str, str, float]]:
    """Stages that a node in ZooKeeper ends."""
    waiting = sorted(starts, key=lambda start: start.asked_ms, reverse=True)
    for entry in entries(folder / "zookeeper" / "data"):
        for write in entry.writes:
            if waiting and _COMMAND.match(write.path) and entry.at_ms >= int(waiting[-1].asked_ms):
                yield COMMAND, waiting.pop().run, entry.at_ms
            for stage, pattern in _NODES:
                if (match := pattern.match(write.path)) is not None:
                    yield stage, match["run"], entry.at_ms


def _table(found: Mapping[str, Mapping[str, Sequence[float]]], durable_ms: float) -> str:
    lines = [f"a durable write takes {durable_ms} ms; times in ms: " + ", ".join(found)]
    for stage in dict.fromkeys(stage for stages in found.values() for stage in stages):
        line = f"{stage:24}"
        for stages in found.values():
            values = stages.get(stage)
            shown = (
                f"p50 {percentile(values, 0.5):7.1f}   p99 {percentile(values, 0.99):7.1f}" if values else ""
            )
            line += f"{shown:32}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all child processes are ended
    sys.exit(main())
