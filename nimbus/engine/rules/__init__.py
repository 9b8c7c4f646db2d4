"""The leader's rules. Each takes one subject and returns a decision, or the time until which there is none.

They read the state and never change it. After a crash at any point the next leader goes on from the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.domain.ids import CommandId
from nimbus.domain.run import Run
from nimbus.domain.writes import CreateRun, PutRun, Write
from nimbus.engine.agenda import Instant, Kind, Subject
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.rules import (
    alerts,
    archive,
    assign,
    attempts,
    backfills,
    children,
    commands,
    concurrency,
    datasets,
    due,
    intervals,
    lateness,
    new_run,
    raised,
    reads,
    schedules,
    settings,
    stops,
    terms,
    waits,
)
from nimbus.engine.state import State

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


def next_subject(state: State) -> Subject | None:
    """The subject to decide next. Ended attempts come early, because they free slots.

    The record of the term comes first: nothing is decided in an epoch without a record.

    Until everything is read, only attempts are decided: an attempt is read together with its run, and depends
    on nothing else. Free slots and priorities depend on the whole state.

    A parent takes in the end of a child run before a queued run starts, so its tree keeps its place.
    """
    agenda = state.agenda
    urgent = agenda.first("term", "abdication", "attempt")
    if urgent is not None or not state.census_taken:
        return urgent
    return (
        agenda.first("run", "child")
        or state.next_queued()
        or agenda.first(*_BEFORE_TASKS)
        or state.next_ready()
        or agenda.first("overdue", "finished", "schema")
    )


def ask(state: State, subject: Subject, now: Instant) -> Answer:
    """The answer of a subject's rule, with the writes that follow from ended runs, and alerts."""
    answer = _asked(state, subject, now)
    if not isinstance(answer, Decision):
        return answer
    answer = datasets.noted(state, concurrency.with_places(state, new_run.numbered(state, answer)))
    answer = due.noted(state, answer, now.wall)
    if ended := _ended_runs(answer.writes):
        answer = backfills.noted(state, intervals.noted(state, answer, ended, now), ended)
    return raised.with_alerts(state, answer, now.wall)


def _ended_runs(writes: Sequence[Write]) -> list[Run]:
    """Runs that these writes make final."""
    return [
        write.run for write in writes if isinstance(write, (CreateRun, PutRun)) and write.run.state.is_final
    ]


def _asked(state: State, subject: Subject, now: Instant) -> Answer:
    match subject.kind:
        case "term" | "abdication" | "schema":
            return _about_term(state, subject, now)
        case "attempt":
            return attempts.supervise_attempt(state, subject.attempt, now)
        case "run":
            return stops.stop_run(state, subject.run, now)
        case "command":
            return _answered(state, subject.command, now)
        case "pipeline" | "backfill":
            return _next_date(state, subject, now)
        case "child" | "children" | "overdue" | "pins" | "queue" | "rendering" | "task" | "wait":
            return _start(state, subject, now)
        case "finished":
            return archive.retire_run(state, subject.run, now.wall)
        case "alert" | "deadline" | "fresh" | "hold" | "late":
            return _told(state, subject, now)
        case "worker":
            return Nothing()  # the end of its back-off has reopened admission; nothing else to do


def _answered(state: State, command: CommandId, now: Instant) -> Answer:
    rests_until_s = state.commands.rests_until_s.get(command, now.elapsed_s)
    if rests_until_s > now.elapsed_s:
        return Nothing(after_s=rests_until_s)
    return commands.answer_command(state, command, now.wall)


def _next_date(state: State, subject: Subject, now: Instant) -> Answer:
    """Rules of schedules and backfills, whose next date may start a run."""
    if subject.kind == "backfill":
        return backfills.step_backfill(state, subject.backfill, now.wall)
    return schedules.fire_schedule(state, subject.pipeline, now.wall)


def _told(state: State, subject: Subject, now: Instant) -> Answer:
    """Rules of alerts, and of lateness that raises alerts."""
    if subject.kind == "deadline":
        return lateness.watch_deadline(state, subject.pipeline, now.wall)
    if subject.kind == "fresh":
        return lateness.watch_dataset(state, subject.dataset, now.wall)
    if subject.kind == "hold":
        return settings.end_hold(state, subject.name, now.wall)
    if subject.kind == "late":
        return lateness.note_late(state, subject.run, subject.task, now.wall)
    return alerts.send_alert(state, subject.name, now.wall)


def _about_term(state: State, subject: Subject, now: Instant) -> Answer:
    """Rules of this leader's term and of its end."""
    if subject.kind == "term":
        return terms.keep_term(state, now)
    if subject.kind == "abdication":
        return terms.resign_as_recorded(state)
    return terms.raise_schema(state, now)


def _start(state: State, subject: Subject, now: Instant) -> Answer:
    """Rules of waiting subjects: queued runs, ready tasks, tasks without a worker, tasks with child runs."""
    if subject.kind == "wait":
        return waits.end_wait(state, subject.run, subject.task, now)
    if subject.kind == "overdue":
        return assign.fail_overdue(state, subject.run, subject.task, now.wall)
    if subject.kind == "child":
        return children.take_in_end(state, subject)
    if subject.kind == "children":
        return children.start_children(state, subject, now.wall)
    if subject.kind == "queue":
        return concurrency.start_queued(state, subject.run, now.wall)
    if subject.kind == "pins":
        return reads.pin_reads(state, subject.run, subject.task, now.wall)
    if subject.kind == "rendering":
        return assign.render_task(state, subject.run, subject.task, now.wall)
    return assign.open_attempt(state, subject.run, subject.task, now.wall)
