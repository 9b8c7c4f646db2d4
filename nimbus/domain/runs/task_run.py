"""A task within one run, and its attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from nimbus.domain.attempts.cost import Cost
from nimbus.domain.ids import RunId, WorkerId
from nimbus.domain.pipelines.pipeline import FailureClass, TaskSpec
from nimbus.domain.runs.children import Children


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Who ended a task without an attempt, when and why: no worker runs such a task, or it could not begin.

    The task's state has the result.
    """

    at: datetime
    by: str = ""
    """The person who approved or rejected it; empty: no person did, see `reason`."""
    reason: str
    timed_out: bool = False
    """True for a wait or an approval that has failed because its timeout passed."""


class TaskState(StrEnum):
    """The state of a task of a run."""

    WAITING = "waiting"
    """No open attempt: its needs are not done, or no worker is free, or a retry is due at `retry_at`."""
    RUNNING = "running"
    """Its last attempt is open (ordered, claimed or running), or its child runs are under way."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its `when` is false, or it requires the success of a skipped task. The run does not fail by this."""
    NOT_RUN = "not_run"
    """It did not run to its end, because a need failed or its run was stopped."""

    @property
    def is_final(self) -> bool:
        """True when no event changes the task any more."""
        return self not in (TaskState.WAITING, TaskState.RUNNING)


class Outcome(StrEnum):
    """How an attempt ended: the content of its END."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    """It was stopped on request."""
    LOST = "lost"
    """Its processes disappeared without an exit record; user code may have run in part."""
    FENCED = "fenced"
    """A leader closed it before a driver claimed it: user code never ran and never will."""
    REFUSED = "refused"
    """The worker could not start it (release not available, disk full, no Java); user code never ran."""

    @property
    def is_infrastructure(self) -> bool:
        """True when the task did not cause it. The task is tried again without using up a retry."""
        return self in (Outcome.LOST, Outcome.FENCED, Outcome.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a task. Open until `outcome` is set."""

    number: int
    worker: WorkerId
    opened_at: datetime
    opened_by_epoch: int
    reaper: WorkerId | None = None
    """The worker on the same host that was ordered to reap the attempt."""
    stop_requested: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    failure: FailureClass | None = None
    """Class of a failure or timeout. None: not known, or another outcome."""
    pipeline_at_fault: bool = False
    """See `End.pipeline_at_fault`."""
    output: str | None = None
    """Reference of the committed output, relative to `worker.data`: a folder, or the key of a manifest."""
    application: str | None = None
    """Id of its Spark application, checked by `application_id`; None: not known."""
    jvm: str = ""
    """Which JVM its Spark had: kept, new, or its own and why; empty: no JVM, or not known."""
    cost: Cost | None = None
    """See `End.cost`."""
    has_result: bool = False
    """True: it has a result, which is in its END, and later in history."""

    @property
    def ordered_to(self) -> WorkerId:
        """The worker that has its order: its worker, or, later, its reaper. It takes a slot there."""
        return self.reaper or self.worker

    @property
    def ending(self) -> str:
        """Outcome and class of failure, such as `failed (analysis)`; empty while it is open."""
        if self.outcome is None or self.failure is None or self.failure.value == self.outcome.value:
            return self.outcome or ""
        return f"{self.outcome} ({self.failure})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """The origin of a task's success that this run reuses."""

    run: RunId
    """The run in which it succeeded."""
    attempt: Attempt | None
    """None: the leader ended the task there without an attempt."""
    result: Mapping[str, Any] | None = None
    """The result, if a task of this run reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One task within one run."""

    spec: TaskSpec
    state: TaskState = TaskState.WAITING
    attempts: tuple[Attempt, ...] = ()
    """The last attempts; see `nimbus.domain.runs.growth` for the limit."""
    earlier_failures: int = 0
    """`failures` among the attempts that the record no longer holds."""
    earlier_mishaps: int = 0
    earlier_out_of_memory: int = 0
    early_ends: int = 0
    """Of a task that is kept running: how many of its last attempts in a row ended soon after their start."""
    retry_at: datetime | None = None
    """The next attempt starts no earlier than this; None: at once."""
    children: Children | None = None
    """Set for a begun task of kind `pipeline`. Its attempt is in `attempts` only after it has ended."""
    settled: Settlement | None = None
    """Set for a task that the leader ended without an attempt."""
    left_out: bool = False
    """True: skipped because it was not selected. It meets every trigger rule of others."""
    reused: Reused | None = None
    """Set: the success of an earlier run is used, and the task was not run."""
    warned: int = 0
    """Last attempt that `late` was raised for; 1 for a task without attempts."""
    asked: bool = False
    """True: `waiting_for_approval` was raised."""
    sequence: int = 0
    """Of a success that has published: see `Version.sequence`."""

    @property
    def committed(self) -> Attempt | None:
        """The attempt that succeeded, in this run or in the run that the task is reused from."""
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
        """How many attempts were opened, which is the number of the last one."""
        return self.attempts[-1].number if self.attempts else 0

    @property
    def failures(self) -> int:
        """Number of attempts that count against the task's retries."""
        return self.earlier_failures + sum(
            a.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) for a in self.attempts
        )

    @property
    def out_of_memory(self) -> int:
        """Number of attempts that failed with the class `out_of_memory`."""
        return self.earlier_out_of_memory + sum(
            a.failure is FailureClass.OUT_OF_MEMORY for a in self.attempts
        )

    @property
    def infrastructure_failures(self) -> int:
        """Number of attempts that ended lost, fenced or refused."""
        return self.earlier_mishaps + sum(
            a.outcome is not None and a.outcome.is_infrastructure for a in self.attempts
        )
