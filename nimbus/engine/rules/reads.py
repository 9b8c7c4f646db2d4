"""Pins the versions of datasets that a run reads, when all of them are there."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from datetime import datetime

from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.data.reads import (
    Lacking,
    Partitions,
    ReadError,
    awaits_inputs,
    missing,
    reads_new,
    to_pin,
    wanted,
)
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Places, Run
from nimbus.domain.runs.task_run import TaskState
from nimbus.engine.decision import Answer, Decision, FindVersions, NoDecision, Refusal, put_run
from nimbus.engine.rules.release_checks import check_reader
from nimbus.engine.state import State
from nimbus.engine.state.tasks import Pins
from nimbus.engine.work_queue import Key

MAX_AT_ONCE = 400_000
"""Limit of the bytes that one transaction pins. ZooKeeper accepts 1 MB, and a larger read is pinned alone."""
_BYTES = 80
"""About the size of a version, compressed, beside what it carries."""


def pin_reads(state: State, run_id: RunId, name: TaskName, now: datetime) -> Answer:
    """Pin what a ready task reads: a publication of what is missing queues the task again.

    The versions are found by an effect, because some are in history alone: by one for all tasks of a run that
    wait for data of others. They are pinned in one transaction with the run's record, and never change.
    """
    run, key = state.runs.live.get(run_id), Key("pins", run_id, name)
    if run is None or key in state.tasks.pins.under_way or not lifecycle.is_ready(run, run.tasks[name]):
        return NoDecision()
    if run.holds is not Places.ALL and not awaits_inputs(run, name):
        return NoDecision()  # the run gets its place first, see `pinned_apart`
    others = (state.runs.live[other] for other in state.runs.of(run.pipeline) if other != run_id)
    if any(read.new for read in to_pin(run, name)) and any(map(reads_new, others)):
        return NoDecision()  # the end of the other run tells what is new, and queues this one
    pins = state.tasks.pins.results.get(key)
    if isinstance(pins, Refusal):
        return _failed(run, name, pins.message, now)
    try:  # in the turn that pins: since the run's creation, the grant may be taken away, or the data removed
        check_reader(state, run.pipeline, state.catalog.team_of(run.pipeline) or None, to_pin(run, name))
    except RefusedError as exc:
        return _failed(run, name, str(exc), now)
    if isinstance(pins, Lacking):
        return NoDecision() if _is_current(state, pins) else _look_up(state, run, name, now)
    if pins is None or pins.keys() <= run.pins.keys():  # pinned already, here or for another task
        return _look_up(state, run, name, now)
    if _is_read(state, run, pins):
        return _look_up(state, run, name, now)
    pinned = replace(run, pins={**_first(pins, run.pins), **run.pins})
    return put_run("reads_pinned", pinned, run, task=name)


def _first(looked_up: Pins, pins: Container[str]) -> Pins:
    """As many reads as one transaction holds; the others follow from the same look-up."""
    first: dict[str, tuple[Version, ...]] = {}
    size = 0
    for name, versions in looked_up.items():
        more = sum(_BYTES + version.carried_bytes for version in versions)
        if name not in pins and (not first or size + more <= MAX_AT_ONCE):
            first[name] = versions
            size += more
    return first


def _is_read(state: State, run: Run, pins: Pins) -> bool:
    """True when another run has read what was found with `take: new`, and has succeeded since."""
    for read in run.reads:
        dataset = state.catalog.datasets.get(read.dataset) if read.new else None
        taken = 0 if dataset is None else dataset.taken_by(run.pipeline)
        if taken and any(version.sequence <= taken for version in pins.get(read.name, ())):
            return True
    return False


def _is_current(state: State, lacking: Lacking) -> bool:
    """True if nothing was published since."""
    datasets = state.catalog.datasets
    return all(
        name in datasets and datasets[name].published == count for name, count in lacking.published.items()
    )


def _look_up(state: State, run: Run, name: TaskName, now: datetime) -> Answer:
    asked: list[tuple[Read, Partitions, Dataset | None]] = []
    try:
        for read in to_pin(run, name):
            dataset = state.catalog.datasets.get(read.dataset)
            if missing(read, run, dataset):
                return NoDecision()
            needs = Partitions()
            if dataset is not None and read.new:
                needs = Partitions(since=dataset.taken_by(run.pipeline))
            elif dataset is not None and read.of is None:
                needs = wanted(read, run, dataset)
            asked.append((read, needs, dataset))
    except ReadError as exc:
        return _failed(run, name, str(exc), now)
    if not asked or (awaits_inputs(run, name) and state.tasks.finder(run.id) not in (None, name)):
        return NoDecision()
    about = {"run": run.id, "task": name}
    return Decision(name="reads_looked_up", effects=(FindVersions(run, name, tuple(asked)),), about=about)


def lacking(state: State, run: Run, name: TaskName) -> str:
    """The first dataset that a ready task waits for; empty: none."""
    try:
        lacks = (missing(read, run, state.catalog.datasets.get(read.dataset)) for read in to_pin(run, name))
        return next(filter(None, lacks), "")
    except ReadError as exc:
        return str(exc)


def _failed(run: Run, name: TaskName, reason: str, now: datetime) -> Decision:
    failed = lifecycle.conclude_waiting(run, name, TaskState.FAILED, now, reason)
    return put_run("reads_refused", failed, run, task=name, error=reason)
