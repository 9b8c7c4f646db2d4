"""Builds a new run, as an effect: the definition is on disk, and a template may take long.

Only the command or schedule that starts the run waits for the result.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nimbus.domain.child_runs import with_releases
from nimbus.domain.datasets import datasets_of
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.run import Run, RunCause
from nimbus.domain.run_number import next_number
from nimbus.domain.writes import CreateRun, Write
from nimbus.engine.agenda import Subject
from nimbus.engine.decision import Answer, BuildRun, Decision, Nothing, Refusal
from nimbus.engine.rules.release_checks import check_publisher, check_reader, check_uses
from nimbus.engine.state import State

_FRESH = timedelta(minutes=1)
"""Age of a built run, whose times are those of its draft, from which it is built again."""


def built(state: State, subject: Subject, draft: Draft, parent: Run | None = None) -> Run | Answer:
    """The run of a draft, or a decision to build it, or `Nothing` while it is being built.

    Args:
        state: The leader's state.
        subject: The subject that starts the run. It waits for one run at a time.
        draft: The request. The result may be from an earlier draft of the same run, with its times.
        parent: The parent of a child run.

    Raises:
        RefusedError: the run cannot be built.
    """
    if subject in state.builds.under_way:
        return Nothing()
    found = state.builds.results.get(subject)
    if found is None or found.result is None or not _same(state, found.draft, draft):
        return build(state, subject, draft, parent)
    if isinstance(found.result, Refusal):
        raise RefusedError(found.result.code, found.result.message)
    if draft.cause in (RunCause.PARENT, RunCause.BACKFILL, RunCause.DATA) and found.result.keeps_running:
        raise RefusedError(
            "kept_running", f"pipeline {draft.pipeline} has a task that is kept running: its runs do not end."
        )
    owner = state.catalog.team_of(draft.pipeline) or None
    check_publisher(state, draft.pipeline, owner, datasets_of(found.result))  # it may be of an old release
    check_uses(state, draft.pipeline, owner, found.result.variables)
    check_reader(state, draft.pipeline, owner, found.result.reads)  # also what a rerun has pinned already
    return pinned(state, found.result)


def build(state: State, subject: Subject, draft: Draft, parent: Run | None = None) -> Decision:
    """Begin to build the run of a draft."""
    effect = BuildRun(subject, replace(draft, variables=state.settings.variables), parent)
    return Decision(name="run_building_started", effects=(effect,), about={"run": draft.id})


def numbered(state: State, decision: Decision) -> Decision:
    """The decision, with a number for each run that it creates."""
    number = state.runs.newest_number
    writes: list[Write] = []
    for write in decision.writes:
        if isinstance(write, CreateRun):
            number = next_number(state.epoch, number)
            writes.append(CreateRun(replace(write.run, number=number)))
        else:
            writes.append(write)
    return replace(decision, writes=tuple(writes)) if number != state.runs.newest_number else decision


def pinned(state: State, run: Run) -> Run:
    """The run with its child runs pinned to the active releases."""
    names = {task.spec.children.pipeline for task in run.tasks.in_order() if task.spec.children is not None}
    if not names:
        return run
    records = (record for name in names if (record := state.catalog.pipelines.get(name)) is not None)
    return with_releases(
        run, {record.name: record.release for record in records if record.release is not None}
    )


def _same(state: State, one: Draft, other: Draft) -> bool:
    """True when the run of one draft serves for the other. After a build, a start may wait long."""
    is_old = other.cause is RunCause.DATA and other.asked_at - one.asked_at > _FRESH
    is_copy = other.selection is not None and other.selection.is_copy
    known = one if is_copy else other  # a copy's release and interval are those of the earlier run
    wanted = (other.id, known.release, known.data_interval, state.settings.variables)
    return (one.id, one.release, one.data_interval, one.variables) == wanted and not is_old
