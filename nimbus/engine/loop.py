"""The engine thread: it waits for leadership, and decides only while it leads.

`Engine.steps` has everything except the waiting, so that a test can run it without the thread.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from leader import FencedOutError, Leadership, asked_to_step_down
from nimbus.domain.attempts.workers import Refusals
from nimbus.domain.cluster.schedulers import LeaderReport, WantedSlots
from nimbus.domain.cluster.terms import EndCause, Leader, asked_for
from nimbus.domain.ids import PipelineName, WorkerId
from nimbus.domain.starts.waits import LastProbe
from nimbus.engine import events as e
from nimbus.engine.decision import Effect, ResignLeadership
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.policy import Policy
from nimbus.engine.report import report, standing
from nimbus.engine.state_reader import Follow
from nimbus.ports import Clock, LeaderStore, StoreUnavailableError
from nimbus.telemetry.build import release
from nimbus.telemetry.engine import EngineMetrics

_log = structlog.get_logger(__name__)

Result = TypeVar("Result")
Steps = Generator[float | None, tuple[e.Event, ...], Result]
"""Yields the seconds to wait for an event (None: no limit). The caller sends the events that came."""

LONGEST_WAIT_S = 5.0
"""Longest pause between two looks at the state, because the wall clock may step."""
COUNT_EVERY_S = 5.0
"""Pause between two counts of the cluster for gauges."""
REPORT_EVERY_S = 1.0
"""Pause between two reports for explanations, see `nimbus.engine.report`."""
END_NOTED_WITHIN_S = 1.0
"""How long a leader that hands over waits until the end of its term is recorded."""
PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The engine's status, for the scheduler's registration."""

    epoch: int | None = None
    leader_since: datetime | None = None
    recovered_at: datetime | None = None
    refusals: Mapping[WorkerId, Refusals] = field(default_factory=dict)
    """Workers that did not start their last attempts."""
    probes: Mapping[str, LastProbe] = field(default_factory=dict)
    """The last probes of data that tasks wait for, see `nimbus.engine.probes`."""
    report: LeaderReport = field(default_factory=LeaderReport)


class Engine:
    """The electable that schedules. All public methods may be called from any thread; they only enqueue."""

    def __init__(
        self,
        *,
        store_for: Callable[[Leadership], LeaderStore],
        still_leads: Callable[[], bool],
        start_effect: Callable[[Effect], None],
        policy: Policy,
        clock: Clock,
        metrics: EngineMetrics,
        on_status: Callable[[], None],
        follow: Follow | None = None,
    ) -> None:
        self._store_for = store_for
        self._still_leads = still_leads
        self._start_effect = start_effect
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._on_status = on_status
        self._follow = follow
        self._inbox: queue.SimpleQueue[tuple[float, e.Event]] = queue.SimpleQueue()
        """Events with the time of arrival, by `Clock.elapsed_s`."""
        self._elected_at = 0.0
        """When the last term began, by `Clock.elapsed_s`. The next two attributes use the same clock."""
        self._counted_at = -COUNT_EVERY_S
        self._reported_at = -REPORT_EVERY_S
        self._wanted: tuple[WantedSlots, ...] | None = None
        """As counted last in this term."""
        self._kept: deque[e.Event] = deque()
        """Events that a term took from the inbox and did not handle before it ended. Engine thread only."""
        self._quarantined: Mapping[PipelineName, str] = {}
        self._stopping = False
        self.status = EngineStatus()
        self._thread = threading.Thread(target=self._run, name="nimbus-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: timedelta) -> bool:
        """Make the thread end, and wait for it. False: it did not end in time."""
        self.enqueue(e.StopAsked())
        if self._thread.ident is not None:  # else it was not started
            self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def stop_soon(self) -> None:
        """Note that the process is about to stop, which is the cause of any end of a term from now on."""
        self._stopping = True

    def elected(self, leadership: Leadership) -> None:
        """See `leader.Electable`."""
        self.enqueue(e.Elected(leadership))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """See `leader.Electable`. A leader that hands over keeps the lock until this returns.

        So this waits until the end of the term is recorded, for a second at most.
        """
        applied = threading.Event()
        self.enqueue(e.LeadershipRevoked(leadership.epoch, reason, applied.set))
        if self._thread.is_alive():
            applied.wait(END_NOTED_WITHIN_S)

    def enqueue(self, event: e.Event) -> None:
        """Put an event into the inbox."""
        self._inbox.put((self._clock.elapsed_s(), event))

    def _run(self) -> None:
        steps = self.steps()
        wait_s = next(steps)
        try:
            while True:
                wait_s = steps.send(self.collect(wait_s))
        except StopIteration:
            return

    def steps(self) -> Steps[None]:
        """Run the engine until `StopAsked`. Engine thread only."""
        while True:
            event = yield from self._next()
            if isinstance(event, e.OfTerm):
                continue  # for a term that is over
            match event:
                case e.StopAsked():
                    return
                case e.Elected(leadership):
                    if (yield from self._run_term(leadership)):
                        return
                case e.QuarantineChanged(quarantined):
                    self._quarantined = quarantined
                case e.LeadershipRevoked(applied=applied):
                    applied()

    def collect(self, timeout_s: float | None) -> tuple[e.Event, ...]:
        """Wait for an event, then take all that there are. Engine thread only."""
        batch: list[e.Event] = []
        try:
            came, event = self._inbox.get(timeout=timeout_s)
            self._metrics.turned(self._clock.elapsed_s() - came)
            batch.append(event)
            while True:
                batch.append(self._inbox.get_nowait()[1])
        except queue.Empty:
            return tuple(batch)

    def _run_term(self, leadership: Leadership) -> Steps[bool]:
        """Lead until it is over. True: the process is shutting down."""
        epoch = leadership.epoch
        self._elected_at, self._counted_at = self._clock.elapsed_s(), -COUNT_EVERY_S
        self._set_status(EngineStatus(epoch=epoch, leader_since=self._clock.now()))
        _log.info("term_started", epoch=epoch)
        term: LeaderTerm | None = None
        try:
            term = self._take_the_lead(leadership)
            return (yield from self._lead(term, epoch))
        except FencedOutError as exc:
            self._metrics.fenced_out()
            _log.warning("write_fenced", epoch=epoch, error=str(exc))
            self._start_effect(ResignLeadership("a write was refused: another scheduler leads"))
        except Exception as exc:  # noqa: BLE001 - the top of the thread: it ends this leadership, not the process
            _log.exception("term_failed", epoch=epoch)
            if term is not None:
                self._note_end(term, EndCause.FAILED, reason=repr(exc))
            self._start_effect(ResignLeadership("the engine failed; the log has the trace"))
        finally:
            self._set_status(EngineStatus())
        return False

    def _take_the_lead(self, leadership: Leadership) -> LeaderTerm:
        self._wanted = None
        term = LeaderTerm(
            epoch=leadership.epoch,
            schema=leadership.schema,
            leader=Leader(
                id=leadership.participant.id,
                host=leadership.participant.host,
                boot_id=leadership.participant.boot_id,
                version=release(),
            ),
            store=self._store_for(leadership),
            inbox=self.enqueue,
            start_effect=self._start_effect,
            policy=self._policy,
            clock=self._clock,
            metrics=self._metrics,
            follow=self._follow,
        )
        term.apply((e.QuarantineChanged(self._quarantined),))
        return term

    def _lead(self, term: LeaderTerm, epoch: int) -> Steps[bool]:
        fresh = False
        batch: tuple[e.Event, ...] = ()
        while True:
            timeout = PATIENCE_S
            try:
                if not self._still_leads():
                    # LeadershipRevoked will arrive, or the connection is unstable: decide nothing until then.
                    fresh = False
                else:
                    if fresh:
                        term.read_changes(batch)
                    else:
                        term.recover()
                        fresh = True
                    timeout = self._act(term)
            except StoreUnavailableError as exc:
                _log.warning("store_unavailable", epoch=epoch, error=str(exc))
                fresh = False  # the last write may or may not have been done: look at everything again
            kept = tuple(self._kept)
            self._kept.clear()
            batch = (*kept, *(yield 0.0 if kept else timeout))
            over = self._over(batch, term)
            if over is not None:
                return over
            term.apply(batch)

    def _act(self, term: LeaderTerm) -> float:
        """Make the decisions that are due. Return the seconds until there may be more to do."""
        term.read_on()
        term.decide()
        if not term.state.is_loaded:
            return 0.0
        self._report(term)
        self._note_recovery()
        self._note_refusals(term.state.attempts.workers.refusals)
        if term.state.tasks.probes.changed:  # published with the next report, because they may be many
            self.status = replace(self.status, probes=term.state.tasks.probes.report())
        self._count(term)
        term.tend()
        if term.has_more():
            return 0.0
        idle_s = term.idle_s()
        return LONGEST_WAIT_S if idle_s is None else min(max(0.0, idle_s), LONGEST_WAIT_S)

    def _count(self, term: LeaderTerm) -> None:
        if self._clock.elapsed_s() < self._counted_at + COUNT_EVERY_S:
            return
        self._counted_at = self._clock.elapsed_s()
        counted = standing(term.state, self._clock.now())
        self._wanted = tuple(counted.wanted)
        self._metrics.stands(counted)

    def _report(self, term: LeaderTerm) -> None:
        """Set the report for explanations. The next registration publishes it."""
        now_s = self._clock.elapsed_s()
        if self.status.recovered_at is None or now_s >= self._reported_at + REPORT_EVERY_S:
            self._reported_at = now_s
            self.status = replace(self.status, report=report(term.state, self._wanted))

    def _over(self, batch: tuple[e.Event, ...], term: LeaderTerm) -> bool | None:
        """None: go on. False: this term is over. True: the process stops. Later events are kept."""
        epoch = term.state.epoch
        for index, event in enumerate(batch):
            if isinstance(event, e.OfTerm):
                continue  # the term applies it
            match event:
                case e.StopAsked():
                    return True
                case e.LeadershipRevoked(revoked, reason, applied) if revoked == epoch:
                    _log.info("term_ended", epoch=epoch, reason=reason)
                    self._note_asked_end(term, reason)
                    applied()
                    self._kept.extend(batch[index + 1 :])
                    return False
                case e.Elected(leadership) if leadership.epoch > epoch:  # ours was not revoked before
                    self._kept.extend(batch[index:])
                    return False
                case e.LeadershipRevoked(applied=applied):
                    applied()
                case e.QuarantineChanged(quarantined):
                    self._quarantined = quarantined
                case e.Elected():
                    continue
        return None

    def _note_asked_end(self, term: LeaderTerm, reason: str) -> None:
        """Record a requested end of a term. The successor closes a term whose leadership was lost."""
        asked = term.state.leadership.abdication
        cause = asked_for(asked, term.state.epoch, self._clock.now())
        if asked is not None and cause is not None:
            self._note_end(term, cause, reason=asked.reason, by=asked.by)
        elif self._stopping:
            self._note_end(term, EndCause.STOPPED)
        elif (wish := asked_to_step_down(reason)) is not None:
            cause = EndCause.HANDED_OVER if wish.to else EndCause.RESIGNED
            self._note_end(term, cause, reason=wish.reason)

    def _note_end(self, term: LeaderTerm, cause: EndCause, *, reason: str = "", by: str = "") -> None:
        try:
            term.upkeep.end(cause, reason=reason, by=by)
        except Exception as exc:  # noqa: BLE001 - the term ends in any case: the successor closes it
            _log.info("term_left_open", epoch=term.state.epoch, cause=cause, error=str(exc))

    def _next(self) -> Steps[e.Event]:
        """The oldest event; waits for it."""
        while not self._kept:
            self._kept.extend((yield None))
        return self._kept.popleft()

    def _note_recovery(self) -> None:
        if self.status.recovered_at is None:
            _log.info("takeover_completed", epoch=self.status.epoch)
            self._metrics.took_over(self._clock.elapsed_s() - self._elected_at)
            self._set_status(replace(self.status, recovered_at=self._clock.now()))

    def _note_refusals(self, refusals: Mapping[WorkerId, Refusals]) -> None:
        if refusals is not self.status.refusals and refusals != self.status.refusals:
            self._set_status(replace(self.status, refusals=refusals))

    def _set_status(self, status: EngineStatus) -> None:
        self.status = status
        self._metrics.leading(status.epoch is not None)
        self._on_status()
