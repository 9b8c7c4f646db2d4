"""Consumers: which pipelines start by data, as activated releases say."""

from __future__ import annotations

from nimbus.domain.due import MOST_CONSUMERS, consumer_of
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName
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
    """Raise RefusedError if a dataset would start too many pipelines, or be read with `take: new` by them."""
    for name in sorted({read.dataset for read in spec.reads if read.starts}):
        consumers = state.catalog.consumers_of(name)
        others = [due for due in consumers if due.starts_on(name) and due.pipeline != spec.name]
        if len(others) >= MOST_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"dataset {name} starts {MOST_CONSUMERS} pipelines already, which is the limit: let one of "
                "them start others, or start by a schedule.",
            )
    for name in sorted({read.dataset for read in spec.reads if read.new}):
        dataset = state.catalog.datasets.get(name)
        if dataset is not None and len(dataset.taken.keys() - {spec.name}) >= MOST_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"{MOST_CONSUMERS} pipelines read what is new in dataset {name} already, which is the limit: "
                "remove one of them, or read another dataset.",
            )
