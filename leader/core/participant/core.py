"""One participant of an election, without thread and without I/O of its own.

`handle` takes an event, lets the machines of latch and participant decide, and carries out their effects. It
yields its requests to ZooKeeper; the driver sends the answers: `leader.runtime.driver`, over kazoo or memory,
or the simulator.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import assert_never

import structlog

from leader.clock import Clock
from leader.config import ElectionConfig
from leader.core.backoff import Uniform, jittered
from leader.core.latch import core as latch_news
from leader.core.latch import events as latch_ev
from leader.core.latch import states as latch_st
from leader.core.latch.core import LatchCore
from leader.core.latch.ports import SessionView
from leader.core.lease import ZERO, LeadershipLease
from leader.core.participant import effects as do
from leader.core.participant import events as ev
from leader.core.participant import machine
from leader.core.participant import states as st
from leader.core.participant.announcement import Announcement
from leader.core.participant.card import CardKeeper
from leader.core.participant.claim import EpochClaimant
from leader.core.participant.control import Eligibility
from leader.core.participant.declines import DeclineTracker
from leader.core.participant.effects import Effect, Timer
from leader.core.participant.events import Event
from leader.core.participant.operators import see_to
from leader.core.participant.phases import epoch_of, phase_of, place_of
from leader.core.participant.ports import CallbackPort
from leader.core.participant.states import State
from leader.core.participant.term import ConfirmedTerm
from leader.errors import LeaderError
from leader.guard import Verdict
from leader.journal import Journal, Move
from leader.protocol.participant import Participant, encode_id
from leader.protocol.paths import ElectionPaths
from leader.protocol.record import record
from leader.protocol.requests import Steps
from leader.protocol.terms import Leadership
from leader.status import ElectionStatus

_log = structlog.get_logger(__name__)

_TROUBLE = (ev.CallFailed, ev.Crashed, ev.Refused)
_FOR_THE_CARD = (ev.GuardSaid, ev.Drained, ev.WatchFired)
_ABDICATED = (st.Leaving, st.BackingOff)
_SOON = timedelta(milliseconds=1)
"""How long the callback thread has the interpreter to itself, to call `elected`, before we publish."""

_RETRY_FIRST = timedelta(milliseconds=100)


@record
class Question:
    """What the guard was asked last, and has not answered."""

    epoch: int
    asked_at: timedelta


class ParticipantCore:
    """See the module. For its driver alone; but `status` and `term.leadership` may be asked by any thread."""

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
        self._journal, self._callbacks = journal, callbacks
        self._clock, self._uniform = clock, uniform
        self.paths = ElectionPaths(config.root)
        self._card = CardKeeper(
            self.paths, session, participant, clock, reserve=-config.priority, nofailover=config.nofailover
        )
        self._eligibility = Eligibility(self.paths, lambda: self._card.card)
        self._question: Question | None = None
        self._claimant = EpochClaimant(
            self.paths, participant, self._eligibility, config.newest_schema, self._hanging
        )
        self._announcement = Announcement(self.paths, self._claimant)
        self._declines = DeclineTracker(self.paths, participant, config.forced_takeover_after, clock)
        self._lease = LeadershipLease(session.liveness, clock, config.step_down_margin)
        patience = max(config.handover_timeout, config.guard_timeout)
        self.term = ConfirmedTerm(self._lease, callbacks, journal, clock, patience)
        self._latch: LatchCore | None = None
        self._news: deque[tuple[latch_news.News, Leadership | None]] = deque()  # with the term it is about
        self._due_at: timedelta | None = None
        self._publish_at: timedelta | None = None
        self._last_abdication: str | None = None
        self._last_verdict: Verdict | None = None
        self._trouble: str | None = None
        self.state: State = st.Outside()
        self.ended = False

    # --- asked by any thread ----------------------------------------------------------------------

    def status(self) -> ElectionStatus:
        """How we stand, put together from what other threads may be changing: for showing only. No I/O."""
        state, latch, due_at = self.state, self._latch, self._due_at
        place = place_of(None if latch is None else latch.state)
        back_off = max(due_at - self._clock(), ZERO) if due_at and isinstance(state, st.BackingOff) else None
        return ElectionStatus(
            phase=phase_of(state, None if latch is None else latch.state),
            epoch=epoch_of(state),
            position=None if place is None else place.position,
            predecessor=None if place is None else place.before,
            last_abdication=self._last_abdication,
            last_verdict=self._last_verdict,
            back_off_remaining=back_off,
            trouble=self._overdue_call()
            or self._card.trouble
            or self._trouble
            or (None if latch is None else latch.trouble),
            paused=self._eligibility.paused,
            everybody_declines=self._declines.everybody_declines,
            leading_for=self.term.age(),
            proof_age=self._lease.proof_age(),
            time_left=self._lease.remaining() if self.term.granted else None,
        )

    # --- driven -----------------------------------------------------------------------------------

    @property
    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        if self.ended:
            return None
        first, latch = self._due_at, self._latch
        for at in (self._publish_at, self._card.due_at, None if latch is None else latch.due_at):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired. It says "look again"; but of a latch node, that it is gone."""
        if isinstance(self.state, st.Leading) and path in (self.paths.leader, self.paths.control):
            yield from self.handle(ev.WatchFired())
            return
        if path == self.paths.leader or self._latch is None:
            return
        if self._claimant.heard(path):
            place = place_of(self._latch.state)
            if place is not None and place.before is not None:
                yield from self._settle(self._through_latch(latch_ev.NodeGone(place.before)))
            return
        of_latch = path.startswith(self.paths.queue)
        if not of_latch and not isinstance(self._latch.state, latch_st.Waiting):
            return  # of epoch, control or a card; who waits must know, who holds has its proofs
        event = self._latch.heard(path, gone and of_latch)
        if event is not None:
            yield from self._settle(self._through_latch(event))

    def link(self, event: latch_ev.LinkEvent) -> Steps[None]:
        """The session changed its state."""
        if isinstance(event, latch_ev.SessionGone | latch_ev.LinkUp):
            self._card.soon()
        if isinstance(event, latch_ev.SessionGone | latch_ev.LinkDown):
            self._declines.reset()
        if self._latch is not None:
            yield from self._settle(self._through_latch(event))
        if isinstance(event, latch_ev.LinkUp):
            yield from self._keep_card()

    def expired(self) -> Steps[None]:
        """`due_at` has come."""
        now = self._clock()
        if self._publish_at is not None and self._publish_at <= now:
            self._publish_at = None
            yield from self.handle(ev.WatchFired())
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            yield from self.handle(ev.Due())
        latch = self._latch
        if latch is not None and latch.due_at is not None and latch.due_at <= now:
            latch.due_at = None
            yield from self._settle(self._through_latch(latch_ev.Due()))
        if self._card.due_at is not None and self._card.due_at <= now:
            self._card.due_at = None
            yield from self._keep_card(look=True)

    def readiness(
        self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]
    ) -> Steps[None]:
        """Our readiness has changed; the others shall know."""
        if self._card.ready(ready, missing, missing_bytes, reasons):
            yield from self.handle(ev.Poked())
        yield from self._keep_card()

    def handle(self, event: Event) -> Steps[None]:
        """Step through `event` and through all it leads to."""
        if isinstance(event, ev.AddAsked) and self._config.nofailover:
            return  # it shows its card, and never stands in the queue
        if isinstance(event, ev.GuardSaid):
            question = self._question
            if question is None:
                return
            if question.epoch != event.epoch:  # an answer to an older question: the newest is asked only now
                self._question = Question(question.epoch, self._clock())
                return
            self._question = None
            if not self._is_guarding(event.epoch):
                return  # too late: the term it is about was given back
            event = yield from self._weighed(event, question.asked_at)
        yield from self._settle(self._stepped(event))
        if isinstance(event, ev.Drained) and self._question is not None:
            self._question = Question(self._question.epoch, self._clock())  # it is asked only now
        if isinstance(event, ev.Drained) and self.term.drained(event.epoch):
            yield from self._settle(self._stepped(ev.Poked()))
        if isinstance(event, _FOR_THE_CARD) and self._publish_at is None:
            yield from self._keep_card()

    def _is_guarding(self, epoch: int) -> bool:
        return isinstance(self.state, st.Guarding) and self.state.leadership.epoch == epoch

    def abort(self, reason: str) -> None:
        """The driver ends, whatever state we are in: leadership is over, and the electable is told."""
        self._revoke(reason)
        self.state = st.Closed()
        self.ended = True

    # --- the inside -------------------------------------------------------------------------------

    def _settle(self, work: Steps[list[Event]]) -> Steps[None]:
        """Do `work` and step through every event that comes of it."""
        pending: deque[Event] = deque()
        current: Steps[list[Event]] | None = work
        while current is not None:
            try:
                pending.extend((yield from current))
            except LeaderError as exc:
                pending.append(ev.CallFailed(str(exc)) if exc.retryable else ev.Crashed(str(exc)))
            except Exception as exc:  # noqa: BLE001 - never silence: leadership ends, a retry follows
                _log.exception("election_failed", state=type(self.state).__name__)
                pending.append(ev.Crashed(f"{type(exc).__name__}: {exc}"))
            while self._news:
                pending.append(self._as_event(*self._news.popleft()))
            current = self._stepped(pending.popleft()) if pending else None

    def _stepped(self, event: Event) -> Steps[list[Event]]:
        before = self.state
        self._note(event)
        if isinstance(event, ev.LatchEnded):
            yield from self._announcement.take_back(self._session.session_id)
        moved = machine.step(before, event)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self._due_at = None
            self._journal.moved(Move("participant", before, moved.state, event))
            self._note_change(before, moved.state)
        for effect in moved.effects:
            answers = yield from self._perform(effect)
            if answers:
                return answers
        return []

    def _perform(self, effect: Effect) -> Steps[list[Event]]:
        match effect:  # in the order of their haste
            case do.Grant(leadership):
                return self._grant(leadership)
            case do.Revoke(_, reason):
                self._revoke(reason)
            case do.CloseLatch(reason):
                return (yield from self._close_latch(reason))
            case do.SetTimer(timer, count):
                self._due_at = self._clock() + self._delay(timer, count)
            case do.AskGuard(epoch):
                hanging = self._question  # the new question waits behind it
                self._question = Question(epoch, self._clock() if hanging is None else hanging.asked_at)
                self._callbacks.ask(epoch)
            case do.PublishSoon():
                self._publish_at = self._clock() + _SOON
            case do.Publish(leadership):
                return (yield from self._publish(leadership))
            case do.StartLatch():
                return (yield from self._start_latch())
            case do.End():
                self.ended = True
                yield from self._card.withdraw()
            case _:
                assert_never(effect)
        return []

    def _delay(self, timer: Timer, count: int) -> timedelta:
        """How long `timer` runs; longer and random for a higher `count`."""
        config = self._config
        match timer:
            case Timer.GUARD:
                return config.guard_timeout
            case Timer.DRAIN:
                return config.handover_timeout
            case Timer.SETTLED:
                return config.requeue_backoff_max
            case Timer.RETRY:
                return jittered(_RETRY_FIRST, config.retry_max, count, self._uniform)
            case Timer.BACK_OFF:
                pause = jittered(config.requeue_backoff_min, config.requeue_backoff_max, count, self._uniform)
                return min(pause, self._declines.time_until_forced(pause))

    def _close_latch(self, reason: str) -> Steps[list[Event]]:
        if self._latch is None:
            return [ev.LatchEnded()]
        return (yield from self._through_latch(latch_ev.CloseAsked(reason)))

    def _through_latch(self, event: latch_ev.Event) -> Steps[list[Event]]:
        if self._latch is not None:
            yield from self._latch.handle(event)
        return []

    def _start_latch(self) -> Steps[list[Event]]:
        """Publish the new latch before it is started: its news must find it, not a closed one (Storm)."""
        told = yield from self._card.keep()
        if isinstance(told, ev.LatchVetoed):
            return [told]
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
        return (yield from self._through_latch(latch_ev.Started()))

    def _as_event(self, news: latch_news.News, term: Leadership | None) -> Event:
        """Several pieces of news may have come together: lost, and gained again."""
        match news:
            case latch_news.Gained():
                self.term.lock_gained()
                return ev.LatchGained(term) if term is not None else ev.Crashed("a lock without an epoch")
            case latch_news.Lost(reason):
                self._claimant.forget(term)
                return ev.LatchLost(reason)
            case latch_news.Vetoed(reason, at_once):
                return ev.LatchVetoed(reason, at_once)
            case latch_news.Ended():
                self._claimant.forget(self._claimant.leadership)
                self._latch = None
                return ev.LatchEnded()
            case _:
                assert_never(news)

    def _hanging(self) -> str | None:
        """Why a claim would be vain: its question could not be asked."""
        if self.term.overdue is not None:
            self.term.keep_waiting()
        return self._overdue_call()

    def _overdue_call(self) -> str | None:
        """Which call of the electable or the guard has not returned in time. Any thread."""
        epoch, question = self.term.overdue, self._question
        if epoch is not None:
            return f"the electable hangs: elected() or revoked() of epoch {epoch} has not returned"
        if question is not None and self._clock() - question.asked_at >= self._config.guard_timeout:
            return "the guard still hangs in an earlier question"
        return None

    def _weighed(self, said: ev.GuardSaid, asked_at: timedelta) -> Steps[ev.GuardSaid]:
        """Weigh the guard's verdict against the readiness of the other participants."""
        verdict = yield from self._declines.admitted(said.verdict)
        self._last_verdict = verdict
        self._journal.judged(said.epoch, verdict, self._clock() - asked_at)
        self._card.judged(verdict.ready, verdict.reasons)
        return ev.GuardSaid(said.epoch, (yield from self._declines.weighed(verdict, self._card.card)))

    def _grant(self, leadership: Leadership) -> list[Event]:
        if not self.term.grant(leadership):
            return [ev.LatchLost("the lock was lost while the guard was asked")]
        self._card.leads(True)
        self._last_abdication = None
        self._eligibility.settled()
        self._declines.reset()
        return []

    def _revoke(self, reason: str) -> None:
        if self.term.revoke(reason):
            self._card.leads(False)
            self._last_abdication = reason

    def _publish(self, leadership: Leadership) -> Steps[list[Event]]:
        session_id = self._session.session_id or 0
        refused = yield from self._announcement.keep(leadership, session_id)
        if refused is not None:
            return [ev.Refused(refused)]
        control, version = yield from self._eligibility.refresh()
        latch = self._latch
        if latch is not None and isinstance(latch.state, latch_st.Holding):
            yield from self._claimant.find_successor(latch.state.node)
        wish = yield from see_to(self.paths, control, version, leadership)
        if wish is not None:
            return [ev.AbdicationAsked(wish.in_words(), leadership.epoch, at_once=bool(wish.to))]
        return []

    def _keep_card(self, *, look: bool = False) -> Steps[None]:
        if isinstance(self.state, st.Closed):
            return
        told = yield from self._card.keep(look=look)
        if told is not None:
            yield from self._settle(self._stepped(told))

    def _note_change(self, before: State, after: State) -> None:
        """Tell others, and the status, what a change of state means."""
        if isinstance(after, _ABDICATED):
            self._last_abdication = after.reason
        if isinstance(before, _ABDICATED) and isinstance(after, st.InLine):
            self._card.queues(True)  # until the latch is vetoed again
            self._card.soon()
        was_out, is_out = isinstance(before, st.Outside), isinstance(after, st.Outside)
        if was_out or is_out:
            self._card.queues(not is_out)
            self._card.soon()

    def _note(self, event: Event) -> None:
        """Keep for the status what the state does not hold."""
        if isinstance(event, ev.LatchGained):
            self._trouble = None
            self._card.queues(True)
        elif isinstance(event, ev.LatchVetoed):
            if not event.at_once and self._card.card.queues:  # the others need not wait for us
                self._card.queues(False)
                self._card.soon()
        elif isinstance(event, _TROUBLE):
            self._trouble = event.reason
            _log.warning("election_trouble", state=type(self.state).__name__, reason=event.reason)
