"""State that a worker and its executors share: ids, connections, and the phase of each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import Assignment
from nimbus.ports import AttemptBoard, Clock, LogArchive, StoreUnavailableError
from nimbus.records import UnreadableRecordError
from nimbus.telemetry.worker import WorkerMetrics
from nimbus.worker import settlement
from nimbus.worker.clock import pauses
from nimbus.worker.connections import Connections
from nimbus.worker.loop import Action, Loop
from nimbus.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


class Phase(Enum):
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
    """For the processes that run attempts."""
    clock: Clock
    logs: LogArchive | None
    metrics: WorkerMetrics = field(default_factory=lambda: WorkerMetrics(CollectorRegistry()))
    loop: Loop = field(default_factory=Loop)
    phases: dict[str, Phase] = field(default_factory=dict)

    @property
    def unended(self) -> frozenset[str]:
        """Attempts that are being prepared, run or settled. Any thread."""
        return frozenset(attempt for attempt, phase in self.phases.copy().items() if phase is not Phase.DONE)

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
        if self.phases.get(attempt) is not Phase.DONE and outcome is not None:
            self.metrics.ended(outcome)
        self.phases[attempt] = Phase.DONE

    def refuse(self, order: Assignment, reason: str, *, pipeline_at_fault: bool = False) -> None:
        """End an attempt that cannot be started here. See `End.pipeline_at_fault`."""
        _log.warning("attempt_refused", attempt=order.attempt, error=reason[:300])
        self.done(order.attempt, Outcome.REFUSED)
        asked = (self.board, order, self.settings.id, reason, self.clock.now())
        self.do(partial(settlement.refuse, *asked, pipeline_at_fault=pipeline_at_fault))
