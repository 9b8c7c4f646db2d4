"""Runs in ZooKeeper, and the orders for their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from nimbus import run_record
from nimbus.adapters.store.calls import Calls, check_size, or_raise, without_unreadable
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain.attempts.orders import inputs_of, order_for, pins_of
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.errors import RecordTooLargeError
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.growth import largest
from nimbus.domain.runs.run import Run
from nimbus.records import ASSIGNMENT, UnreadableRecordError

MAX_NEEDS = 100
"""Limit of the needs, and of the inputs, that are stored with an order."""

MAX_CARRIED = 16 * 1024
"""Limit of the URIs and values of data from outside that are stored with an order, in bytes."""


def encode_order(order: Assignment) -> bytes:
    """The order's node."""
    pinned = [version for versions in order.pins.values() for version in versions]
    is_large = any(version.item is not None or version.value for version in pinned)
    is_large = is_large or sum(version.carried_bytes for version in pinned) > MAX_CARRIED
    if is_large or max(len(order.task.needs), len(order.inputs), len(pinned)) > MAX_NEEDS:
        task = replace(order.task, needs=(), requirements={})
        order = replace(order, task=task, inputs={}, pins={}, needs_in_run=True)
    return ASSIGNMENT.encode(order)


def completed_order(order: Assignment, run: Run) -> Assignment:
    """The order with its needs and inputs, which are in its run's record."""
    spec = run.tasks[order.task.name].spec
    return replace(
        order,
        task=replace(order.task, needs=spec.needs, requirements=spec.requirements),
        inputs=inputs_of(run, spec),
        pins=pins_of(run, spec),
        needs_in_run=False,
    )


def prepare(run: Run) -> None:
    """Check and encode a new run ahead of `creation`. Any thread. One that is too large is left to it."""
    with suppress(RecordTooLargeError):
        check_growth(run)
        run_record.encode_ahead(run)


def creation(paths: Paths, run: Run) -> Iterator[Operation]:
    """The operations that create a run. Raises RecordTooLargeError: it is too large, or could become so."""
    nodes = run_record.encoded_ahead(run)
    if nodes is None:
        check_growth(run)
        nodes = run_record.encode_new(run)
    for part, data in nodes.items():
        yield Operation("create", paths.run_part(run.id, part), data)


def change(paths: Paths, run: Run, before: Run) -> Iterator[Operation]:
    """The operations that update a run from an earlier version."""
    for part, encode in run_record.changes(run, before).items():
        kind: Literal["create", "set"] = "create" if part.startswith(run_record.WRITTEN_ONCE) else "set"
        yield Operation(kind, paths.run_part(run.id, part), encode=encode)


def removal(calls: Calls, paths: Paths, run: RunId) -> Iterator[Operation]:
    """The operations that remove a run."""
    for part in calls.children(paths.run(run)) or ():
        yield Operation("delete", paths.run_part(run, part))
    yield Operation("delete", paths.run(run))


def read_run(calls: Calls, paths: Paths, run: RunId) -> Run | None:
    """One run; None if it does not exist. Raises UnreadableRecordError."""
    return next(all_runs(calls, paths, [run]), None)


def readable_runs(calls: Calls, paths: Paths, runs: Iterable[str] | None = None) -> Iterator[Run]:
    """Some runs, or all; an unreadable one is logged and left out."""
    return without_unreadable(_read(calls, paths, runs))


def all_runs(calls: Calls, paths: Paths, runs: Iterable[str] | None = None) -> Iterator[Run]:
    """Some runs, or all; missing ones are left out. Raises UnreadableRecordError."""
    return or_raise(_read(calls, paths, runs))


def _read(calls: Calls, paths: Paths, runs: Iterable[str] | None) -> Iterator[Run | UnreadableRecordError]:
    """Read any number of runs in two rounds: their own nodes, then the parts that these name."""
    names = (calls.children(paths.runs) or ()) if runs is None else runs
    heads: dict[str, run_record.RunNode] = {}
    for name, data in calls.read_all(paths.runs, names):
        try:
            heads[name] = run_record.head_of(data, paths.run(RunId(name)))
        except UnreadableRecordError as exc:
            yield exc
    parts = [f"{name}/{part}" for name, head in heads.items() for part in head.children]
    nodes = dict(calls.read_all(paths.runs, parts))
    for name, head in heads.items():
        place = paths.run(RunId(name))
        below = {part: nodes[f"{name}/{part}"] for part in head.children if f"{name}/{part}" in nodes}
        if len(below) < len(head.children) and not calls.exists(place):
            continue  # it was removed in the meantime
        try:
            yield run_record.completed(head, below, place)
        except UnreadableRecordError as exc:
            yield exc


LARGEST_NODE = 128 * 1024
_PIN_BYTES = 700
"""About the largest size of a version in an order, with the reference of its output."""


def check_growth(run: Run) -> None:
    """Check the size of the largest order of a new run. Its pages and plan have limits of their own.

    Raises:
        RecordTooLargeError: it could exceed the limit of a node.
    """
    spec = max((task.spec for task in run.tasks.in_order()), key=_weight)
    check_size(f"an order for a task of run {run.id}", _order_bytes(run, spec), LARGEST_NODE)


def _order_bytes(run: Run, spec: TaskSpec) -> int:
    """Bytes of the largest order for a task, which is written together with the record."""
    run = largest(run, (spec.name, *_stored_needs(spec)))
    task = run.tasks[spec.name]
    attempt = AttemptId(run.id, spec.name, task.tried)
    epoch = task.attempts[-1].opened_by_epoch
    pins = _PIN_BYTES * MAX_NEEDS + MAX_CARRIED if spec.uses else 0
    return pins + len(encode_order(order_for(run, attempt, epoch=epoch, kind=AssignmentKind.RUN)))


def _weight(spec: TaskSpec) -> int:
    """Approximate size of a task's part of its order: its own texts, and the place of each input."""
    texts = (*spec.args, *spec.spark_conf, *spec.spark_conf.values(), *spec.dependencies, *spec.jars)
    return sum(map(len, texts)) + sum(2 * len(need) + 200 for need in _stored_needs(spec))


def _stored_needs(spec: TaskSpec) -> Sequence[TaskName]:
    return spec.needs if len(spec.needs) <= MAX_NEEDS else ()
