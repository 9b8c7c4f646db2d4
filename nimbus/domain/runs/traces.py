"""A finished run as a trace: one root span, and a span for each attempt. Pure.

Also what traces and lineage share: their ids, which are derived from our own ids, so that a repeated event
has the same id; and all attempts of a run's tasks, including those that the run's record only counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid5

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.ids import AttemptId, ClusterId, RunId, WorkerId
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun
from nimbus.domain.wording import shortened

_NAMESPACE = UUID("6f4f2b3e-5f1d-5c0e-9a55-2f1f0a3c7b61")
"""Namespace of the ids of lineage. It must never change."""


def trace_id(cluster: ClusterId, run: RunId) -> str:
    """Id of a run's trace: 32 hexadecimal characters."""
    return _digest(cluster, run)[:32]


def run_span_id(cluster: ClusterId, run: RunId) -> str:
    """Id of the root span of a run's trace: 16 hexadecimal characters."""
    return _digest(cluster, run)[32:48]


def attempt_span_id(cluster: ClusterId, attempt: AttemptId) -> str:
    """Id of an attempt's span: 16 hexadecimal characters."""
    return _digest(cluster, str(attempt))[:16]


def traceparent(cluster: ClusterId, attempt: AttemptId) -> str:
    """The parent of the spans that an attempt's own code creates.

    Source: W3C Trace Context, https://www.w3.org/TR/trace-context/
    """
    return f"00-{trace_id(cluster, attempt.run)}-{attempt_span_id(cluster, attempt)}-01"


def run_uuid(cluster: ClusterId, run: RunId) -> str:
    """The `runId` of a run in lineage."""
    return str(uuid5(_NAMESPACE, f"{cluster}/{run}"))


def attempt_uuid(cluster: ClusterId, attempt: AttemptId) -> str:
    """The `runId` of an attempt in lineage."""
    return str(uuid5(_NAMESPACE, f"{cluster}/{attempt}"))


def _digest(cluster: ClusterId, name: str) -> str:
    return sha256(f"{cluster}/{name}".encode()).hexdigest()


Dropped = Mapping[AttemptId, Attempt]
"""Attempts that the run's record does not hold, rebuilt from their slots."""


def attempts(task: TaskRun) -> tuple[Attempt, ...]:
    """Attempts in the record. A task with child runs under way has one more, which stands for them."""
    children = task.children
    if children is None or task.state.is_final or children.attempt <= task.tried:
        return task.attempts
    standing = Attempt(
        number=children.attempt,
        worker=WorkerId(""),
        opened_at=children.began_at,
        opened_by_epoch=children.epoch,
    )
    return (*task.attempts, standing)


def first_untold(was: TaskRun | None) -> int:
    """Number of the first attempt with something unreported, if everything in `was` is reported."""
    told = () if was is None else attempts(was)
    if not told:
        return 1
    return told[-1].number + (told[-1].outcome is not None)


def dropped(before: Run | None, run: Run) -> Iterator[AttemptId]:
    """Attempts that ended since `before` (None: ever) and that the record of `run` does not hold."""
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        kept = attempts(task)
        if kept and task.spec.children is None:  # child runs have no slots
            for number in range(first_untold(was), kept[0].number):
                yield AttemptId(run.id, task.spec.name, number)


def from_slots(slots: Mapping[AttemptId, Slots]) -> Dropped:
    """Attempts, rebuilt from their slots. An attempt without END is left out."""
    return {
        attempt: Attempt(
            number=attempt.number,
            worker=(None if slots.claim is None else slots.claim.worker) or WorkerId(""),
            opened_at=end.ended_at if slots.claim is None else slots.claim.claimed_at,
            opened_by_epoch=0,
            started_at=end.started_at,
            ended_at=end.ended_at,
            outcome=end.outcome,
            reason=shortened(end.reason),
            exit_code=end.exit_code,
            failure=end.failure,
            cost=end.cost,
        )
        for attempt, slots in slots.items()
        if (end := slots.end) is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None = None
    linked: tuple[str, str] | None = None
    """Trace id and span id of the parent in another run."""
    started_at: datetime
    ended_at: datetime
    """Never before `started_at`, although the clocks of two hosts may differ."""
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    error: str | None = None
    """None: no failure."""


def spans(cluster: ClusterId, run: Run, dropped: Dropped) -> Iterator[Span]:
    """The trace of a finished run, its root first. The same run gives the same spans."""
    root = _root(cluster, run)
    yield root
    for attempt_id, attempt in dropped.items():
        yield _of_attempt(cluster, root, run.tasks[attempt_id.task], attempt_id, attempt)
    for name, task in run.tasks.items():
        for attempt in attempts(task):
            yield _of_attempt(cluster, root, task, AttemptId(run.id, name, attempt.number), attempt)


def _root(cluster: ClusterId, run: Run) -> Span:
    started_at = run.started_at or run.created_at
    parent = run.parent
    above = None if parent is None else AttemptId(parent.run, parent.task, parent.attempt)
    return Span(
        name=run.pipeline,
        trace_id=trace_id(cluster, run.id),
        span_id=run_span_id(cluster, run.id),
        linked=None if above is None else (trace_id(cluster, above.run), attempt_span_id(cluster, above)),
        started_at=started_at,
        ended_at=max(started_at, run.finished_at or started_at),
        attributes={
            "nimbus.pipeline": run.pipeline,
            "nimbus.run": run.id,
            "nimbus.release": run.release,
            "nimbus.cause": run.cause.value,
            "nimbus.outcome": run.state.value,
            "nimbus.queued_s": (started_at - run.created_at).total_seconds(),
        },
        error=(run.reason or run.state.value) if run.state is RunState.FAILED else None,
    )


def _of_attempt(
    cluster: ClusterId, root: Span, task: TaskRun, attempt_id: AttemptId, attempt: Attempt
) -> Span:
    ended_at = attempt.ended_at or root.ended_at
    waited = {}
    if attempt.started_at is not None:
        waited_s = (attempt.started_at - attempt.opened_at).total_seconds()
        waited = {"nimbus.started_after_s": max(0.0, waited_s)}
    outcome = attempt.outcome or Outcome.LOST
    return Span(
        name=task.spec.name,
        trace_id=root.trace_id,
        span_id=attempt_span_id(cluster, attempt_id),
        parent_id=root.span_id,
        started_at=attempt.opened_at,
        ended_at=max(attempt.opened_at, ended_at),
        attributes={
            "nimbus.pipeline": root.attributes["nimbus.pipeline"],
            "nimbus.run": attempt_id.run,
            "nimbus.release": root.attributes["nimbus.release"],
            "nimbus.task": task.spec.name,
            "nimbus.task.type": task.spec.kind.value,
            "nimbus.attempt": attempt_id.number,
            "nimbus.worker": attempt.worker,
            "nimbus.outcome": attempt.ending or outcome.value,
            **waited,
        },
        error=None if outcome is Outcome.SUCCEEDED else attempt.reason or outcome.value,
    )
