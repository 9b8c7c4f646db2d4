"""Explains what a run waits for, as a list of reasons. Pure: facts in, reasons out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial

from nimbus.api.explain.task import ClusterFacts, how_kept, why, why_run
from nimbus.api.models import Model
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.starts.admission import Wait, admit
from nimbus.domain.starts.timing import gives_up_at, not_before, queue_ends_at
from nimbus.domain.starts.waits import probes_of


class ReasonModel(Model):
    """One reason: a condition that is waited for, or a fact."""

    about: str
    """The waiting subject, such as `run`, `task load`, `schedule`, `run flights-20260301t060000z`."""
    why: str
    """The reason, with ids, figures and times, and what would end it."""
    until: datetime | None = None
    """The next time at which this changes by itself; null: it ends by an event."""


class ExplanationModel(Model):
    """Why a run or a pipeline is not running."""

    id: str
    """Id of the run, or name of the pipeline."""
    state: str
    next_change: datetime | None
    """The earliest `until`."""
    reasons: list[ReasonModel]
    more: int
    """Number of left-out reasons. For a task of a run, request that task alone."""


def explanation(name: str, state: str, reasons: list[ReasonModel], most: int) -> ExplanationModel:
    """The answer, with at most `most` reasons."""
    return ExplanationModel(
        id=name,
        state=state,
        next_change=min((reason.until for reason in reasons if reason.until is not None), default=None),
        reasons=reasons[:most],
        more=max(0, len(reasons) - most),
    )


def explain_run(run: Run, slots: Mapping[AttemptId, Slots], facts: ClusterFacts) -> list[ReasonModel]:
    """Reasons of the run, then of each task that could move now. Tasks behind others are only counted."""
    return [reason() for reason in run_reasons(run, slots, facts)]


def run_reasons(
    run: Run, slots: Mapping[AttemptId, Slots], facts: ClusterFacts
) -> list[Callable[[], ReasonModel]]:
    """The reasons of `explain_run`, each made by a call: of thousands of tasks, a page shows one."""
    own = _of_run(run, facts)
    reasons: list[Callable[[], ReasonModel]] = []
    if own is not None:
        reasons.append(partial(_reason, "run", own, None if run.state.is_final else run.deadline, facts))
    if run.state is RunState.QUEUED:
        return reasons
    reasons += [partial(explain_task, run, task, slots, facts) for task in _moving(run)]
    waiting = [task for task in run.tasks.in_order() if not task.state.is_final]
    behind = sum(not _met(run, task) for task in waiting)
    if behind:
        more = f"{behind} more wait for tasks that they need"
        reasons.append(partial(ReasonModel, about="tasks", why=more))
    return reasons


def explain_task(
    run: Run, task: TaskRun, slots: Mapping[AttemptId, Slots], facts: ClusterFacts
) -> ReasonModel:
    """Explain one task in any state."""
    attempt = task.open_attempt
    seen = None if attempt is None else slots.get(AttemptId(run.id, task.spec.name, attempt.number))
    kept = how_kept(task, facts.now)
    told = (f"{kept}; " if kept else "") + (why(run, task, seen, facts) or _not_waiting(task))
    return _reason(f"task {task.spec.name}", told, next_change(run, task, facts), facts)


def next_change(run: Run, task: TaskRun, facts: ClusterFacts) -> datetime | None:
    """The next time at which something changes for a waiting task by itself; None: no time is known."""
    moments = [None if run.state.is_final else run.deadline]
    if run.opens_tasks and task.state is TaskState.WAITING and _met(run, task):
        start = not_before(run, task)
        moments += [start, *_ends(run, task, facts)] if start is None or start <= facts.now else [start]
    return min((moment for moment in moments if moment is not None and moment > facts.now), default=None)


def _ends(run: Run, task: TaskRun, facts: ClusterFacts) -> Iterator[datetime | None]:
    """Times at which the wait of a ready task ends or is checked again."""
    spec = task.spec
    if spec.kind.uses_worker:
        yield queue_ends_at(run, task)
        if spec.children is None:
            answer = admit(run, task, facts.capacity(), facts.now)
            yield answer.until if isinstance(answer, Wait) else None
        return
    yield gives_up_at(run, task)
    wanted = probes_of(spec.waits_for, spec.args)
    probes = facts.probes() if wanted else {}
    yield from (probes[probe.name].next_at for probe in wanted if probe.name in probes)


def _of_run(run: Run, facts: ClusterFacts) -> str | None:
    """Why the whole run does not move; None: nothing blocks it."""
    if (told := why_run(run, facts)) is not None:
        return told
    because = f": {run.reason}" if run.reason else ""
    if run.state.is_final:
        return f"{run.state}{because}"
    if run.state is RunState.STOPPING:
        return f"it is being stopped, and ends with its {len(run.open_attempts())} open attempts{because}"
    return f"it has failed, and cleans up{because}" if run.is_cleaning_up else None


def _moving(run: Run) -> Iterator[TaskRun]:
    """Tasks to explain. Live run: those whose needs are met, or, if paused, begun ones. Else: failed ones."""
    for task in run.tasks.in_order():
        if run.state.is_final:
            if task.state is TaskState.FAILED:
                yield task
        elif task.state is TaskState.RUNNING or (
            task.state is TaskState.WAITING and run.paused is None and _met(run, task)
        ):
            yield task


def _met(run: Run, task: TaskRun) -> bool:
    return all(run.tasks[need].state.is_final for need in task.spec.needs)


def _not_waiting(task: TaskRun) -> str:
    attempt = task.open_attempt
    if attempt is None:
        return str(task.state)
    since = f"since {attempt.opened_at:%Y-%m-%d %H:%M:%SZ}"
    return f"it computes: attempt {attempt.number} on worker {attempt.worker}, {since}"


def _reason(about: str, told: str, until: datetime | None, facts: ClusterFacts) -> ReasonModel:
    ahead = until if until is not None and until > facts.now else None
    return ReasonModel(about=about, why=told, until=ahead)
