"""The port through which a worker runs attempts, one executor for each kind of holder, and what they share.

The port has no `stop`: the process that runs an attempt reads stop requests from the board itself, so a stop
works without the worker (ADR 29).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry

from nimbus.domain.attempts.slots import Claim, End, Holder
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard, Clock, StoreUnavailableError
from nimbus.records import UnreadableRecordError
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker import settlement
from nimbus.worker.attempt.connections import Connections
from nimbus.worker.host.clock import pauses
from nimbus.worker.host.loop import Action, Loop
from nimbus.worker.settings import RunnerPlan, WorkerSettings

_log = structlog.get_logger(__name__)


class Sight(Enum):
    """What this worker knows about an attempt's holder."""

    ALIVE = "alive"
    """It will end the attempt by itself."""
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """This worker cannot see it."""


class Executor(Protocol):
    """Runs attempts, and knows how they ended. Worker thread; every call names an attempt.

    Every call may be repeated, also by another worker after the death of the first one: CLAIM is created
    before user code runs, so a second launch of an attempt ends there.
    """

    def sweep(self) -> None:
        """Take over attempts of an earlier worker: watch living ones, and settle dead ones."""

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """Start an attempt, or refuse it. OSError, StoreUnavailableError: temporary failure; try again."""

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """Check the holder that an attempt's claim names. None: the attempt is not claimed."""

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """Kill what a dead holder left of an attempt; return its END: the holder's record, or "lost"."""

    def close(self) -> None:
        """Accept no more attempts; running ones continue."""


class AttemptPhase(Enum):
    """The phase of an attempt on its worker."""

    PREPARING = "preparing"
    RUNNING = "running"
    SETTLING = "settling"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Shared by a worker and its executors. Worker thread."""

    settings: WorkerSettings
    board: AttemptBoard
    connections: Connections
    clock: Clock
    metrics: WorkerMetrics = field(default_factory=lambda: WorkerMetrics(CollectorRegistry()))
    loop: Loop = field(default_factory=Loop)
    phases: dict[str, AttemptPhase] = field(default_factory=dict)

    @property
    def unended(self) -> frozenset[str]:
        """Attempts that are being prepared, run or settled. Any thread."""
        phases = self.phases.copy()
        return frozenset(attempt for attempt in phases if phases[attempt] is not AttemptPhase.DONE)

    def do(self, action: Action, waits: Iterator[float] | None = None) -> None:
        """Run an action now, or again until ZooKeeper, the disk or a record permit it."""
        waits = waits or pauses(0.2, 2.0)
        try:
            action()
        except (StoreUnavailableError, OSError, UnreadableRecordError) as exc:
            _log.warning("worker_must_wait", worker=self.settings.id, error=str(exc)[:300])
            self.loop.after(next(waits), partial(self.do, action, waits))

    def done(self, attempt: str, outcome: Outcome | None) -> None:
        """Forget an attempt, which ended with `outcome`; None: another process ended it."""
        if self.phases.get(attempt) is not AttemptPhase.DONE and outcome is not None:
            self.metrics.ended(outcome)
        self.phases[attempt] = AttemptPhase.DONE

    def refuse(self, order: Assignment, reason: str, *, pipeline_at_fault: bool = False) -> None:
        """End an attempt that cannot be started here. See `End.pipeline_at_fault`."""
        _log.warning("attempt_refused", attempt=order.attempt, error=reason[:300])
        self.done(order.attempt, Outcome.REFUSED)
        asked = (self.board, order, self.settings.id, reason, self.clock.now())
        self.do(partial(settlement.refuse, *asked, pipeline_at_fault=pipeline_at_fault))

    def fence(self, attempt: str, outcome: Outcome, why: str) -> Claim | None:
        """End an attempt that no driver has claimed. Returns as `settlement.fence`."""
        end = settlement.ended(attempt, outcome, why, self.clock.now())
        return settlement.fence(self.board, end, self.settings.id, end.ended_at)

    def lost(self, attempt: str, claim: Claim | None, why: str, outcome: Outcome = Outcome.LOST) -> End:
        """See `settlement.lost`."""
        return settlement.lost(attempt, claim, why, self.clock.now(), outcome)

    def settle(self, end: End) -> str:
        """Fill END of an attempt whose holder is dead; return the result as text for its folder."""
        why = settlement.put_end(self.board, end)
        _log.info("attempt_settled", attempt=end.attempt, outcome=end.outcome.value, why=why)
        return why


def collect(board: AttemptBoard, order: Assignment, executors: Mapping[Holder, Executor]) -> bool:
    """Execute a REAP order for an attempt that no executor of this worker has launched.

    False while its holder lives, which will end the attempt when it reaches ZooKeeper. Call it again later.
    """
    claim = _as_it_stands(order.claim, board)
    executor = executors[_holder_of(order) if claim is None else claim.holder]
    sight = executor.probe(order.attempt, claim)
    if sight is Sight.GONE:
        settlement.put_end(board, executor.collect(order.attempt, claim))
    return sight is not Sight.ALIVE  # elsewhere: the leader decides when that host is lost


def _holder_of(order: Assignment) -> Holder:
    """The kind of holder that an unclaimed attempt may have."""
    return Holder.APPLICATION if order.task.runs_in_cluster else Holder.PROCESS


def _as_it_stands(claim: Claim | None, board: AttemptBoard) -> Claim | None:
    """The complete claim of an order: a leader of an older release copies only the fields that it knows."""
    standing = None if claim is None else board.read(AttemptId.parse(claim.attempt)).claim
    if standing is None or claim is None:
        return claim
    return standing if claim.nonce == standing.nonce else claim
