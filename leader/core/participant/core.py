"""One participant of an election, driven as `leader.core.latch.core` is.

Its parts perform the effects that the machine returns: the latch, the claimant, the term, the member node.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import assert_never

import structlog

from leader.clock import RETRY_FIRST, Clock, Uniform, jittered
from leader.config import ElectionConfig
from leader.core.latch import model as latch_m
from leader.core.latch.core import LatchCore
from leader.core.lease import ZERO, LeadershipLease, SessionView
from leader.core.participant import machine
from leader.core.participant import model as m
from leader.core.participant.claim import EpochClaimant
from leader.core.participant.eligibility import DeclineTracker, Eligibility
from leader.core.participant.model import Effect, Event, State, Timer, epoch_of, phase_of
from leader.core.participant.publish import MemberNodeKeeper, Publisher
from leader.core.participant.term import CallbackPort, ConfirmedTerm, PendingCalls
from leader.elector import ElectionStatus, Verdict
from leader.errors import LeaderError
from leader.journal import Journal, Judged, Move
from leader.protocol.participant import Participant, encode_id
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps
from leader.protocol.terms import Leadership

_log = structlog.get_logger(__name__)

PUBLISH_DELAY = timedelta(milliseconds=1)
"""Delay of the first publish: meanwhile the driver leaves the GIL to the callback thread's `elected`."""
_TROUBLE = (m.WriteFailed, m.Crashed, m.LeaderNodeRefused)
_FOR_THE_MEMBER_NODE = (m.GuardSaid, m.Drained, m.WatchFired, m.DelayOver)


class ParticipantCore:
    """See the module. Only the driver calls it; any thread may call `status` and `term.leadership`."""

    def __init__(
        self,
        *,
        session: SessionView,
        config: ElectionConfig,
        participant: Participant,
        callbacks: CallbackPort,
        clock: Clock,
        uniform: Uniform,
        journal: Journal,
    ) -> None:
        self._session, self._config, self._participant = session, config, participant
        self._journal, self._clock, self._uniform = journal, clock, uniform
        self.paths = ElectionPaths(config.root)
        self._member = MemberNodeKeeper(
            self.paths, session, participant, clock, reserve=-config.priority, nofailover=config.nofailover
        )
        self._declines = DeclineTracker(self.paths, participant, config.forced_takeover_after, clock)
        self._eligibility = Eligibility(self.paths, lambda: self._member.member, self._declines)
        self._calls = PendingCalls(callbacks, config, clock)
        self._claimant = EpochClaimant(
            self.paths, participant, self._eligibility, config.newest_schema, self._calls.hanging
        )
        self._publisher = Publisher(self.paths, self._claimant, self._eligibility)
        self._lease = LeadershipLease(session.liveness, clock, config.step_down_margin)
        self.term = ConfirmedTerm(self._lease, callbacks, self._calls, journal, clock)
        self._latch: LatchCore | None = None
        self._news: deque[tuple[latch_m.News, Leadership | None]] = deque()  # each with its term
        self._due_at: timedelta | None = None
        self._last_abdication: str | None = None
        self._last_verdict: Verdict | None = None
        self._trouble: str | None = None
        self.state: State = m.Outside()
        self.ended = False

    # --- called by any thread ---------------------------------------------------------------------

    def status(self) -> ElectionStatus:
        """Returns the status, for display only: the driver may change it during this call. No I/O."""
        state, latch, due_at = self.state, self._latch, self._due_at
        place = None if latch is None else latch.place
        back_off = max(due_at - self._clock(), ZERO) if due_at and isinstance(state, m.BackingOff) else None
        return ElectionStatus(
            phase=phase_of(state, None if latch is None else latch.state),
            epoch=epoch_of(state),
            position=None if place is None else place.position,
            predecessor=None if place is None else place.before,
            last_abdication=self._last_abdication,
            last_verdict=self._last_verdict,
            back_off_remaining=back_off,
            trouble=self._calls.overdue()
            or self._member.trouble
            or (None if latch is None else latch.trouble)
            or self._trouble,
            paused=None if latch is None else self._eligibility.paused,
            everybody_declines=self._declines.everybody_declines,
            leading_for=self.term.age(),
            proof_age=self._lease.proof_age(),
            time_left=max(self._lease.remaining(), ZERO) if self.term.granted else None,
        )

    # --- called by the driver ---------------------------------------------------------------------

    @property
    def due_at(self) -> timedelta | None:
        """When the driver must call `expired`."""
        if self.ended:
            return None
        first, latch = self._due_at, self._latch
        for at in (self._member.due_at, None if latch is None else latch.due_at):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def watch_fired(self, path: str, gone: bool) -> Steps[None]:
        """Handle a watch that fired on `path`: read again. `gone` (deleted) matters for a latch node only."""
        if isinstance(self.state, m.Leading) and path in (self.paths.leader, self.paths.control):
            yield from self.handle(m.WatchFired())
            return
        latch = self._latch
        if path == self.paths.leader or latch is None:
            return
        if self._claimant.note_handover(path):
            yield from self._settle(latch.handed_over())
        elif path.startswith(self.paths.queue):
            yield from self._settle(latch.watch_fired(path, gone))
        elif isinstance(latch.state, latch_m.Waiting):  # the others do not read `control` and member nodes
            yield from self._settle(latch.watch_fired(path, gone=False))

    def link(self, event: latch_m.LinkEvent) -> Steps[None]:
        """Handle a change of the session's state."""
        if isinstance(event, latch_m.SessionGone | latch_m.LinkUp):
            self._member.soon()
        if isinstance(event, latch_m.SessionGone | latch_m.LinkDown):
            self._declines.reset()
        if self._latch is not None:
            yield from self._settle(self._latch.link(event))
        if isinstance(event, latch_m.LinkUp):
            yield from self._keep_member_node()

    def expired(self) -> Steps[None]:
        """Handle the timers that are due: `due_at` has come."""
        now = self._clock()
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            yield from self.handle(m.DelayOver())
        latch = self._latch
        if latch is not None and latch.due_at is not None and latch.due_at <= now:
            yield from self._settle(latch.expired())
        if self._member.due_at is not None and self._member.due_at <= now:
            self._member.due_at = None
            yield from self._keep_member_node(reread=True)

    def readiness(
        self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]
    ) -> Steps[None]:
        """Publish a change of this participant's readiness."""
        if self._member.ready(ready, missing, missing_bytes, reasons):
            yield from self.handle(m.Poked())
        yield from self._keep_member_node()

    def handle(self, event: Event) -> Steps[None]:
        """Handle `event`, and each event that follows from it."""
        if isinstance(event, m.AddAsked) and self._config.nofailover:
            return  # such a participant has a member node, and never enters the queue
        if isinstance(event, m.GuardSaid):
            took = self._calls.answered(event.epoch)
            if took is None or not self._is_guarding(event.epoch):
                return  # too late: the term that the guard was asked for is over
            event = yield from self._weighed(event, took)
        yield from self._settle(self._stepped(event))
        if isinstance(event, m.Drained) and self._calls.drained(event.epoch):
            yield from self._settle(self._stepped(m.Poked()))
        is_first = isinstance(event, m.GuardSaid) and isinstance(self.state, m.Leading)
        if isinstance(event, _FOR_THE_MEMBER_NODE) and not is_first:  # `elected` first, see `PUBLISH_DELAY`
            yield from self._keep_member_node()

    def abort(self, reason: str) -> None:
        """End leadership, in any state, because the driver failed or ends; `revoked` is called."""
        self._revoke(reason)
        self.state = m.Closed()
        self.ended = True

    # --- stepping ---------------------------------------------------------------------------------

    def _settle(self, work: Steps[Event | None]) -> Steps[None]:
        """Run `work`, and handle each event that follows from it."""
        current: Steps[Event | None] | None = work
        pending: deque[Event] = deque()
        while current is not None:
            try:
                answer = yield from current
                if answer is not None:
                    pending.append(answer)
            except LeaderError as exc:
                pending.append(m.WriteFailed(str(exc)) if exc.retryable else m.Crashed(str(exc)))
            except Exception as exc:  # noqa: BLE001 - no error is ignored: leadership ends, a retry follows
                _log.exception("election_failed", state=type(self.state).__name__)
                pending.append(m.Crashed(f"{type(exc).__name__}: {exc}"))
            while self._news:
                pending.append(self._as_event(*self._news.popleft()))
            current = self._stepped(pending.popleft()) if pending else None

    def _stepped(self, event: Event) -> Steps[Event | None]:
        """Handle `event` alone. Returns the first answer of its effects, and performs none after it."""
        before = self.state
        self._note(event)
        if isinstance(event, m.LatchEnded):
            yield from self._publisher.take_back(self._session.liveness.facts.session_id)
        moved = machine.step(before, event)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self._due_at = None
            self._journal.record(Move("participant", before, moved.state, event))
            self._member.moved(before, moved.state)
            if isinstance(moved.state, m.Leaving | m.BackingOff):
                self._last_abdication = moved.state.reason
        for effect in moved.effects:
            answer = yield from self._perform(effect)
            if answer is not None:
                return answer
        return None

    def _perform(self, effect: Effect) -> Steps[Event | None]:
        match effect:  # the most urgent first
            case m.GrantLeadership(leadership):
                return self._grant(leadership)
            case m.Revoke(_, reason):
                self._revoke(reason)
            case m.CloseLatch(reason):
                if self._latch is None:
                    return m.LatchEnded()
                yield from self._latch.handle(latch_m.LatchCloseAsked(reason))
            case m.SetTimer(timer, count):
                delay = delay_of(timer, count, self._config, self._uniform, self._declines)
                self._due_at = self._clock() + delay
            case m.AskGuard(epoch):
                self._calls.ask(epoch)
            case m.Publish(leadership):
                return (yield from self._publish(leadership))
            case m.StartLatch():
                return (yield from self._start_latch())
            case m.EndCore():
                self.ended = True
                yield from self._member.withdraw()
            case _:
                assert_never(effect)
        return None

    # --- effects ----------------------------------------------------------------------------------

    def _start_latch(self) -> Steps[Event | None]:
        """Set `_latch` before the latch starts: its first reports must not meet a closed one (Storm)."""
        event = yield from self._member.keep()
        if isinstance(event, m.LatchVetoed):
            return event
        self._latch = LatchCore(
            session=self._session,
            queue=self.paths.queue,
            data=encode_id(self._participant),
            claimant=self._claimant,
            lease=self._lease,
            clock=self._clock,
            uniform=self._uniform,
            retry_max=self._config.retry_max,
            tell=lambda news: self._news.append((news, self._claimant.leadership)),
            journal=self._journal,
        )
        yield from self._latch.handle(latch_m.Started())
        return None

    def _as_event(self, news: latch_m.News, term: Leadership | None) -> Event:
        """Returns the event for a report of the latch. `term` is the claimant's at the time of the report.

        Several reports may wait together, for example lost and gained again.
        """
        match news:
            case latch_m.Gained():
                self.term.lock_gained()
                return m.LatchGained(term) if term is not None else m.Crashed("the lock has no epoch")
            case m.LatchLost():
                self._claimant.forget(term)
            case m.LatchEnded():
                self._claimant.forget(self._claimant.leadership)
                self._latch = None
            case m.LatchVetoed():
                pass
            case _:
                assert_never(news)
        return news

    def _is_guarding(self, epoch: int) -> bool:
        return isinstance(self.state, m.Guarding) and self.state.leadership.epoch == epoch

    def _weighed(self, said: m.GuardSaid, took: timedelta) -> Steps[m.GuardSaid]:
        """Note the guard's verdict; change it if the readiness of the other participants requires that."""
        verdict = yield from self._declines.admitted(said.verdict)
        self._last_verdict = verdict
        self._journal.record(Judged(said.epoch, verdict, took))
        self._member.judged(verdict.ready, verdict.reasons)
        return m.GuardSaid(said.epoch, (yield from self._declines.weighed(verdict, self._member.member)))

    def _grant(self, leadership: Leadership) -> Event | None:
        if not self.term.grant(leadership):
            return m.LatchLost("the lock was lost while the guard was asked")
        self._last_abdication = None
        self._eligibility.settled()
        return None

    def _revoke(self, reason: str) -> None:
        if self.term.revoke(reason):
            self._last_abdication = reason

    def _publish(self, leadership: Leadership) -> Steps[Event | None]:
        session_id = self._session.liveness.facts.session_id or 0
        state = None if self._latch is None else self._latch.state
        node = state.node if isinstance(state, latch_m.Holding) else None
        answer = yield from self._publisher.publish(leadership, session_id, node)
        if not isinstance(answer, m.LeaderNodeRefused):
            self._trouble = None
        return answer

    # --- member node and status -----------------------------------------------------------------------

    def _keep_member_node(self, *, reread: bool = False) -> Steps[None]:
        if isinstance(self.state, m.Closed):
            return
        event = yield from self._member.keep(reread=reread)
        if event is not None:
            yield from self._settle(self._stepped(event))

    def _note(self, event: Event) -> None:
        """Note for the member node and the status what the state does not hold."""
        if isinstance(event, m.LatchGained):
            self._trouble = None
        if isinstance(event, m.LatchGained | m.LatchVetoed):
            self._member.note_lock(event)
        elif isinstance(event, _TROUBLE):
            self._trouble = event.reason
            _log.warning("election_trouble", state=type(self.state).__name__, reason=event.reason)


def delay_of(
    timer: Timer, count: int, config: ElectionConfig, uniform: Uniform, declines: DeclineTracker
) -> timedelta:
    """Return how long `timer` runs. RETRY and BACK_OFF are random and grow with `count`."""
    match timer:
        case Timer.GUARD:
            return config.guard_timeout
        case Timer.PUBLISH:
            return PUBLISH_DELAY
        case Timer.SETTLED:
            return config.requeue_backoff_max
        case Timer.DRAIN:
            return config.handover_timeout
        case Timer.RETRY:
            return jittered(RETRY_FIRST, config.retry_max, count, uniform)
        case Timer.BACK_OFF:
            pause = jittered(config.requeue_backoff_min, config.requeue_backoff_max, count, uniform)
            return min(pause, declines.time_until_forced(pause))
