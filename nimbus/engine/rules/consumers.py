"""Consumers: which pipelines start by data, as activated releases say."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.domain.catalog import PipelineState
from nimbus.domain.due import MAX_CONSUMERS, Due, consumer_of
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.writes import PutDue
from nimbus.engine.state import State


def consumer_put(state: State, spec: PipelineSpec, *, drop: bool = False) -> tuple[PutDue, ...]:
    """The write that an activation needs. `drop`: nothing stays due. A new consumer has nothing due."""
    before = state.catalog.due.get(spec.name)
    due = consumer_of(spec, before)
    if due is None:
        return consumer_removed(state, spec.name)
    due = due.dropped() if drop else due
    return () if due == before else (PutDue(spec.name, due, before),)


def consumer_removed(state: State, name: PipelineName) -> tuple[PutDue, ...]:
    """The write that removes a consumer; empty: it is none."""
    before = state.catalog.due.get(name)
    return () if before is None else (PutDue(name, None, before),)


def check_consumers(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if a transaction would start too many pipelines, or too many read what is new."""
    own = {read.dataset for read in spec.reads if read.starts}
    others = (record for record in state.catalog.pipelines.values() if record.name != spec.name)
    of_others = (
        names
        for record in others
        if record.state is not PipelineState.INACTIVE
        for names in record.profile.published_together
        if own.intersection(names)
    )
    for names in sorted({*spec.published_together, *of_others, *((name,) for name in own)}):
        started = {due.pipeline for name in names for due in _started_by(state, name)} - {spec.name}
        if len(started) + bool(own.intersection(names)) > MAX_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"{_said(names)} would start more than {MAX_CONSUMERS} pipelines, which is the limit: let "
                "one of them start others, or start by a schedule.",
            )
    for name in sorted({read.dataset for read in spec.reads if read.new}):
        dataset = state.catalog.datasets.get(name)
        taken = set(dataset.taken if dataset else ()).intersection(state.catalog.pipelines) - {spec.name}
        if len(taken) >= MAX_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"{MAX_CONSUMERS} pipelines read what is new in dataset {name} already, which is the limit: "
                "remove one of them, or read another dataset.",
            )


def _started_by(state: State, name: DatasetName) -> Iterator[Due]:
    return (due for due in state.catalog.consumers_of(name) if due.starts_on(name))


def _said(names: tuple[DatasetName, ...]) -> str:
    return f"dataset {names[0]}" if len(names) == 1 else f"a task that publishes {', '.join(names)}"
