"""The leader's rules. Each takes one key and returns a decision, or the time until which there is none.

They read the state and never change it. After a crash at any point the next leader goes on from the records.
"""

from __future__ import annotations

from nimbus.domain.writes import CreateRun, PutRun
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.rules import (
    alerts,
    assign,
    attempts,
    backfills,
    children,
    datasets,
    due,
    lateness,
    raised_alerts,
    reads,
    run_ends,
    run_starts,
    schedules,
    terms,
    waits,
)
from nimbus.engine.rules.commands import answers, settings
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key, Kind

_BEFORE_TASKS: tuple[Kind, ...] = (
    "wait",
    "command",
    "hold",
    "pipeline",
    "children",
    "backfill",
    "rendering",
    "pins",
    "alert",
    "late",
    "deadline",
    "fresh",
)
"""Kinds that are decided before ready tasks, in this order."""


def next_key(state: State) -> Key | None:
    """The key to decide next. Ended attempts come early, because they free slots.

    The record of the term comes first: nothing is decided in an epoch without a record.

    Until everything is read, only attempts are decided: an attempt is read together with its run, and depends
    on nothing else. Free slots and priorities depend on the whole state.

    A parent takes in the end of a child run before a queued run starts, so its tree keeps its place.
    """
    work = state.work
    urgent = work.first("term", "abdication", "attempt")
    if urgent is not None or not state.is_loaded:
        return urgent
    return (
        work.first("run", "child")
        or state.next_queued()
        or work.first(*_BEFORE_TASKS)
        or state.next_ready()
        or work.first("overdue", "finished", "schema")
    )


def ask(state: State, key: Key, now: Instant) -> Answer:
    """The answer of a key's rule, with the writes that follow from ended runs, and alerts."""
    answer = _asked(state, key, now)
    if not isinstance(answer, Decision):
        return answer
    answer = run_starts.with_places(state, run_starts.with_numbers(state, answer))
    answer = due.with_due(state, datasets.with_datasets(state, answer), now.wall)
    puts = (write for write in answer.writes if isinstance(write, (CreateRun, PutRun)))
    if ended := [write.run for write in puts if write.run.state.is_final]:
        answer = backfills.with_intervals(state, answer, ended, now)
        answer = backfills.with_counts(state, answer, ended)
    return raised_alerts.with_alerts(state, answer, now.wall)


def _asked(state: State, key: Key, now: Instant) -> Answer:  # noqa: C901 - one branch for each kind
    match key.kind:
        case "term":
            return terms.keep_term(state, now)
        case "abdication":
            return terms.resign_as_recorded(state)
        case "schema":
            return terms.raise_schema(state, now)
        case "attempt":
            return attempts.supervise_attempt(state, key.attempt, now)
        case "run":
            return run_ends.stop_run(state, key.run, now)
        case "finished":
            return run_ends.retire_run(state, key.run, now.wall)
        case "queue":
            return run_starts.start_queued(state, key.run, now.wall)
        case "command":
            return answers.answer_command(state, key.command, now)
        case "pipeline":
            return schedules.fire_schedule(state, key.pipeline, now.wall)
        case "backfill":
            return backfills.step_backfill(state, key.backfill, now.wall)
        case "child":
            return children.take_in_end(state, key)
        case "children":
            return children.start_children(state, key, now.wall)
        case "wait":
            return waits.end_wait(state, key.run, key.task, now)
        case "rendering":
            return assign.render_task(state, key.run, key.task, now.wall)
        case "pins":
            return reads.pin_reads(state, key.run, key.task, now.wall)
        case "task":
            return assign.open_attempt(state, key.run, key.task, now.wall)
        case "overdue":
            return assign.fail_overdue(state, key.run, key.task, now.wall)
        case "late":
            return lateness.note_late(state, key.run, key.task, now.wall)
        case "deadline":
            return lateness.watch_deadline(state, key.pipeline, now.wall)
        case "fresh":
            return lateness.watch_dataset(state, key.dataset, now.wall)
        case "alert":
            return alerts.send_alert(state, key.name, now.wall)
        case "hold":
            return settings.end_hold(state, key.name, now.wall)
        case "worker":
            return NoDecision()  # the end of its back-off has reopened admission; nothing else to do
