"""Measures the leader's engine on a real ZooKeeper; docs/benchmarks.md explains the figures."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.benchmark.engine.revision import Revision, checkout_of, this_checkout
from tests.benchmark.engine.rows import Row, as_json, table
from tests.benchmark.engine.scale import FULL, QUICK, Scale
from tests.benchmark.engine.whole_run import MEASURES, Plan, whole_run
from tests.benchmark.leader.figures import file_system, fsync_ms, machine


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.engine", description=__doc__)
    add = parser.add_argument
    add("--only", type=lambda text: text.split(","), default=list(MEASURES), help=f"of {','.join(MEASURES)}")
    add("--before", metavar="REV", help="a commit to compare with; by default, none")
    add(
        "--before-live",
        type=int,
        default=1_000,
        help="most live runs for that commit, whose costs may grow with them",
    )
    add("--quick", action="store_true", help="small counts, to check that it works; the goals do not apply")
    add("--live", type=int, help="live runs of the crowded cluster and for `turn`, default 10,000")
    add("--pipelines", type=int, help="pipelines in the catalog, default 1,000")
    add("--tasks", type=int, help="tasks for the tasks per second, default 20,000; half of them fan out")
    add("--large", type=int, help="tasks of the large runs, and of the run whose log is measured")
    add("--fan-out", type=int, help="tasks of each run that fans out, default 1,000")
    add("--events", type=int, help="measured turns of each kind, default 1,000")
    add("--patience-s", type=float, help="timeout of each wait")
    add("--data", type=Path, default=Path("build"), help="folder for ZooKeeper's data, such as /dev/shm")
    add("--json", type=Path, default=Path("build/bench-engine.json"))
    options = parser.parse_args(words)
    if unknown := set(options.only) - set(MEASURES):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(MEASURES)}")
    return options


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    if options.live is not None:
        small = tuple(live for live in scale.turn_live if live < options.live)
        scale = replace(scale, crowds=(options.live,), turn_live=(*small, options.live))
    if options.pipelines is not None:
        scale = replace(scale, pipelines=options.pipelines)
    if options.large is not None:
        large = options.large
        scale = replace(scale, large=(large,), large_chain=large, logged=large)
    if options.fan_out is not None:
        runs, width = scale.fan_out
        scale = replace(scale, fan_out=(max(1, runs * width // options.fan_out), options.fan_out))
    if options.tasks is not None:
        width, small_tasks = scale.fan_out[1], scale.small_runs[1]
        half = options.tasks // 2
        scale = replace(
            scale,
            fan_out=(max(1, half // width), min(width, half)),
            small_runs=(max(1, half // small_tasks), small_tasks),
        )
    if options.events is not None:
        scale = replace(scale, events=options.events)
    return scale if options.patience_s is None else replace(scale, patience_s=options.patience_s)


def _comparable(scale: Scale, most: int) -> Scale:
    """The scale for the older engine, with at most `most` live runs."""
    crowds = tuple(live for live in scale.crowds if live <= most) or (most,)
    turns = tuple(live for live in scale.turn_live if live <= most)
    runs, tasks = scale.small_runs
    return replace(
        scale,
        crowds=crowds,
        turn_live=turns,
        large=scale.large[-1:],
        fan_out=(1, scale.fan_out[1]),
        small_runs=(max(1, runs // 10), tasks),
    )


def main(words: list[str] | None = None) -> int:
    """Run the benchmark. Returns the process's exit code."""
    options = _arguments(words)
    scale = _scale(options)
    options.data.mkdir(parents=True, exist_ok=True)
    with _place(options.data) as place, contextlib.ExitStack() as stack:
        revisions = [(this_checkout(), scale)]
        if options.before is not None:
            old = stack.enter_context(checkout_of(options.before, place))
            less = _comparable(scale, options.before_live)
            revisions = [
                (revisions[0][0], replace(scale, crowds=tuple(sorted({*less.crowds, *scale.crowds})))),
                (old, less),
            ]
        what = {**machine(), "file_system": file_system(place), "fsync_ms": fsync_ms(place)}
        _say(f"a durable write takes {what['fsync_ms']['p50']} ms on {what['file_system']}")  # type: ignore[index]
        found = {revision.label: _rows(revision, place, sized, options) for revision, sized in revisions}
    for measure in MEASURES:
        if measure in options.only:
            _say("\n" + table(measure, found))
    commits = {revision.label: revision.commit for revision, _ in revisions}
    result = {"machine": what, "commits": commits, "quick": options.quick, "rows": as_json(found)}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    _say(f"\nall figures: {options.json}")
    return 0


def _rows(revision: Revision, place: Path, scale: Scale, options: argparse.Namespace) -> list[Row]:
    began = time.monotonic()
    rows = []
    plan = Plan(revision, place, scale, set(options.only), lambda words: _say(f"{revision.label}: {words}"))
    for row in whole_run(plan):
        rows.append(row)
        value = "-" if row.value is None else f"{row.value:.4g} {row.unit}"
        _say(f"  {time.monotonic() - began:6.0f} s  {row.words}: {value} {row.verdict} {row.note}")
    return rows


@contextlib.contextmanager
def _place(data: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-engine-", dir=data.absolute()))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all child processes are ended
    sys.exit(main())
