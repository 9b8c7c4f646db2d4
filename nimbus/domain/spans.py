"""A finished run as a trace: one root span, and a span for each attempt. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nimbus.domain.attempt_history import Dropped, attempts
from nimbus.domain.ids import AttemptId, ClusterId
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import Attempt, Outcome, TaskRun
from nimbus.domain.telemetry_ids import attempt_span_id, run_span_id, trace_id


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
    waited = {} if attempt.started_at is None else {"nimbus.started_after_s": _between(attempt)}
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


def _between(attempt: Attempt) -> float:
    """Seconds from an attempt's order to the start of its code."""
    return max(0.0, ((attempt.started_at or attempt.opened_at) - attempt.opened_at).total_seconds())
