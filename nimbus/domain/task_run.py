"""A task within one run, and its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from nimbus.domain.children import Children
from nimbus.domain.failures import FailureClass
from nimbus.domain.ids import RunId, WorkerId
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.settlement import Settlement


class TaskState(StrEnum):
    """Where a task of a run stands."""

    WAITING = "waiting"
    """No open attempt: its needs are not done, or no worker is free, or a retry is due at `retry_at`."""
    RUNNING = "running"
    """Its last attempt is open: intended, claimed or running; or its child runs are under way."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its `when` is false, or it follows the success of a task that was skipped. This fails no run."""
    NOT_RUN = "not_run"
    """Never ran to its end, since something it needs failed or its run was stopped."""

    @property
    def is_final(self) -> bool:
        """No event changes the task any more."""
        return self not in (TaskState.WAITING, TaskState.RUNNING)


class Outcome(StrEnum):
    """How an attempt ended: the content of its END."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    """On request."""
    LOST = "lost"
    """Its processes vanished without a word; user code may have run in part."""
    FENCED = "fenced"
    """A leader closed it before a driver claimed it: user code never ran and never will."""
    REFUSED = "refused"
    """The worker could not start it (release not to be had, disk full, no Java); user code never ran."""

    @property
    def is_infrastructure(self) -> bool:
        """Not the task's own fault: tried again without using up its retries."""
        return self in (Outcome.LOST, Outcome.FENCED, Outcome.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a task. Open until `outcome` is set."""

    number: int
    worker: WorkerId
    opened_at: datetime
    opened_by_epoch: int
    reaper: WorkerId | None = None
    """A worker on the same host that was asked to look for, and end, what is left of the attempt."""
    stop_requested: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    failure: FailureClass | None = None
    """Of an attempt that failed or timed out. None: not known, or another outcome."""
    pipeline_at_fault: bool = False
    """See `End.pipeline_at_fault`."""
    output: str | None = None
    """Reference of the committed output, relative to `worker.data`: a folder, or the key of a manifest."""
    application: str | None = None
    """Id of its Spark application, as `application_id` takes it; None: none is known. Not in layout 1."""
    has_result: bool = False
    """It succeeded with a result, which is in its END, and later in history. Not in layout 1."""

    @property
    def ending(self) -> str:
        """Outcome and class of failure, such as `failed (analysis)`; empty while it is open."""
        if self.outcome is None or self.failure is None or self.failure.value == self.outcome.value:
            return self.outcome or ""
        return f"{self.outcome} ({self.failure})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """Where the success of a task comes from that this run did not run."""

    run: RunId
    """The run in which it succeeded."""
    attempt: Attempt | None
    """None: the leader ended it there."""
    result: Mapping[str, Any] | None = None
    """What it gave, if a task of this run reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One task within one run."""

    spec: TaskSpec
    state: TaskState = TaskState.WAITING
    attempts: tuple[Attempt, ...] = ()
    """The last ones; see `nimbus.domain.growth`."""
    earlier_failures: int = 0
    """`failures` among the attempts that the record does not hold any more."""
    earlier_mishaps: int = 0
    earlier_out_of_memory: int = 0
    retry_at: datetime | None = None
    """Not before this; None: at once."""
    children: Children | None = None
    """Of a task of kind `pipeline` that has begun. Its attempt is in `attempts` only once it has ended."""
    settled: Settlement | None = None
    """Of a task that the leader has ended without an attempt. Not in layout 1."""
    left_out: bool = False
    """Skipped, since it was not selected; for those that need it, it went as they ask. Not in layout 1."""
    reused: Reused | None = None
    """It succeeded in an earlier run, and was not run. Not in layout 1."""
    warned: int = 0
    """The attempt that `late` was raised for last; 1 of a task without attempts. Not in layout 1."""
    asked: bool = False
    """`waiting_for_approval` was raised. Not in layout 1."""

    @property
    def committed(self) -> Attempt | None:
        """The attempt that succeeded, in this run or in the one that it is reused from."""
        if self.reused is not None:
            return self.reused.attempt
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is Outcome.SUCCEEDED else None

    @property
    def open_attempt(self) -> Attempt | None:
        """The attempt that has no END yet. At most the last one can be open."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is None else None

    @property
    def tried(self) -> int:
        """How many attempts were opened; the number of the last one."""
        return self.attempts[-1].number if self.attempts else 0

    @property
    def failures(self) -> int:
        """Attempts that count against the task's retries."""
        return self.earlier_failures + sum(
            a.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) for a in self.attempts
        )

    @property
    def out_of_memory(self) -> int:
        """Attempts whose failure has the class out of memory."""
        return self.earlier_out_of_memory + sum(
            a.failure is FailureClass.OUT_OF_MEMORY for a in self.attempts
        )

    @property
    def mishaps(self) -> int:
        """Attempts that ended through no fault of the task."""
        return self.earlier_mishaps + sum(
            a.outcome is not None and a.outcome.is_infrastructure for a in self.attempts
        )
