"""Bugs of starts by data. More of them: `tests/nimbus/property/test_due.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.adapters.store import datasets as store
from nimbus.definition import targets
from nimbus.domain import writes as w
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.starts.due import Due
from nimbus.engine.decision import Decision
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules import due, schedules
from nimbus.engine.rules.commands import pipelines as pipeline_commands
from nimbus.engine.state.catalog import Catalog
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


def _is_start(write: w.Write) -> bool:
    """True of a write that removes a target whose run starts."""
    if not isinstance(write, w.PutDue) or write.due is None or write.before is None:
        return False
    return write.due.starts > write.before.starts


def _added(marked: Decision, decision: Decision) -> Iterator[w.PutDue]:
    """The marks among the writes of a decision."""
    for write in marked.writes[len(decision.writes) :]:
        if isinstance(write, w.PutDue):
            yield write


@mutant
def change_is_marked_in_a_second_transaction() -> Iterator[None]:
    """AF 35870, Prefect 15343: the version is there, and the event that starts its readers is lost."""
    with replaced(LeaderTerm, _do=in_two(lambda write: not isinstance(write, w.PutDue) or _is_start(write))):
        yield


@mutant
def change_is_marked_in_memory_only() -> Iterator[None]:
    """AF 52711: a leader that dies takes its events along."""
    original = due.with_due

    def with_due(state: Any, decision: Decision, now: Any) -> Decision:
        marked = original(state, decision, now)
        for write in _added(marked, decision):
            state.catalog.put_due(write.pipeline, write.due)
        return decision

    with replaced(due, with_due=with_due):
        yield


@mutant
def target_is_removed_before_its_run_is_created() -> Iterator[None]:
    """Argo Events 2340: the event is used up, and no run follows."""
    with replaced(LeaderTerm, _do=in_two(_is_start)):
        yield


@mutant
def target_stays_due_when_its_run_starts() -> Iterator[None]:
    """Argo Events 850: one change starts run after run."""
    with replaced(
        Due, started=lambda self, _left, now: replace(self, starts=self.starts + 1, started_at=now)
    ):
        yield


@mutant
def gaps_are_ignored() -> Iterator[None]:
    """Dagster 26935, AF 56541: a run starts with 15 of 16 inputs."""
    with replaced(targets, _lacking=lambda _due, _target, _datasets: None):
        yield


@mutant
def pause_is_ignored() -> Iterator[None]:
    """A paused pipeline starts by data."""
    original = due.start_by_data

    def start_by_data(state: Any, record: Any, now: Any) -> Any:
        return original(state, replace(record, state=PipelineState.ACTIVE), now)

    with replaced(schedules, start_by_data=start_by_data):
        yield


@mutant
def paused_consumer_misses_changes() -> Iterator[None]:
    """AF 36308: what changes during a pause starts nothing after it."""
    original = due.with_due

    def with_due(state: Any, decision: Decision, now: Any) -> Decision:
        marked = original(state, decision, now)
        added: list[w.PutDue] = []
        for write in _added(marked, decision):
            record = state.catalog.pipelines.get(write.pipeline)
            if record is None or record.state is not PipelineState.PAUSED:
                added.append(write)
        return replace(marked, writes=(*decision.writes, *added))

    with replaced(due, with_due=with_due):
        yield


@mutant
def leader_does_not_read_what_is_due() -> Iterator[None]:
    """AF 47398: the scheduler restarts, and forgets half of the condition."""
    with replaced(store, read_all_due=lambda _calls, _paths: {}):
        yield


@mutant
def end_of_a_run_wakes_no_target() -> Iterator[None]:
    """AF 56050: what changed during a run waits for the next change."""
    with replaced(Catalog, enqueue_consumer=lambda _self, _name: None):
        yield


@mutant
def drop_of_what_is_due_keeps_it() -> Iterator[None]:
    """AF 73151: the backlog of a pause starts at once."""
    original = pipeline_commands.consumer_put

    def consumer_put(state: Any, spec: Any, *, drop: bool = False) -> Any:
        return original(state, spec)

    with replaced(pipeline_commands, consumer_put=consumer_put):
        yield


@mutant
def removed_consumer_stays_due() -> Iterator[None]:
    """A pipeline that is removed leaves its record behind, and a new one of its name starts at once."""
    with replaced(pipeline_commands, consumer_removed=lambda _state, _name: ()):
        yield
