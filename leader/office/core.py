"""One participant of an election, without thread and without I/O of its own.

`handle` takes an event, lets latch and office decide, and carries out what they want; what it needs from
ZooKeeper it yields. Whoever drives it sends the answers: a thread over kazoo (`leader.loop`), or the
simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

import structlog

from leader.backoff import Uniform, jittered
from leader.clock import Clock
from leader.config import ElectionConfig, GatePolicy
from leader.errors import LeaderError, ParticipantIdInUseError
from leader.guard import Verdict
from leader.journal import Journal, Move
from leader.latch import core as latch_news
from leader.latch import events as latch_ev
from leader.latch import states as latch_st
from leader.latch.core import LatchCore
from leader.latch.ports import SessionView
from leader.office import effects as do
from leader.office import events as ev
from leader.office import machine
from leader.office import states as st
from leader.office.announcement import Announcement
from leader.office.card import CardKeeper
from leader.office.claim import EpochClaimant
from leader.office.consensus import Consensus
from leader.office.control import Eligibility
from leader.office.effects import Effect, Timer
from leader.office.events import Event, Posted
from leader.office.operators import see_to
from leader.office.ports import GuardPort, NotifierPort
from leader.office.questions import Questions
from leader.office.states import State
from leader.protocol.participant import Participant, encode_id
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps
from leader.protocol.terms import Leadership
from leader.status import ElectionStatus, epoch_of, phase_of, place_of
from leader.tenure import ZERO, Tenure

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_CARD_PATROL = 3
"""Session timeouts between two looks at our card: nobody tells us when somebody touches it."""

LinkEvent = latch_ev.LinkUp | latch_ev.LinkDown | latch_ev.SessionGone


class OfficeCore:
    """See the module. One driver at a time; `leadership` and `status` may be asked by any thread.

    Args:
        post: Puts an event into the driver's inbox; called by guard and notifier on their threads.
    """

    def __init__(
        self,
        *,
        session: SessionView,
        config: ElectionConfig,
        participant: Participant,
        guard: GuardPort,
        notifier: NotifierPort,
        clock: Clock,
        uniform: Uniform,
        journal: Journal,
        post: Callable[[Posted], None],
    ) -> None:
        self._session, self._config, self._participant = session, config, participant
        self._notifier, self._journal, self._post = notifier, journal, post
        self._clock, self._uniform = clock, uniform
        self.paths = ElectionPaths(config.root)
        self._card = CardKeeper(
            self.paths, session, participant, reserve=-config.priority, nofailover=config.nofailover
        )
        self._eligibility = Eligibility(self.paths, lambda: self._card.card)
        self._questions = Questions(
            guard, lambda verdict: post(ev.GuardAnswered(verdict)), clock, config.guard_timeout
        )
        self._claimant = EpochClaimant(self.paths, participant, self._eligibility, self._ask_early)
        self._announcement = Announcement(self.paths, self._claimant)
        self._consensus = Consensus(self.paths, participant, config.forced_takeover_after)
        self._tenure = Tenure(session, clock, config.step_down_margin)
        self._latch: LatchCore | None = None
        self._news: deque[tuple[latch_news.News, Leadership | None]] = deque()  # with the term it is about
        self._granted: Leadership | None = None
        self._due_at: timedelta | None = None
        self._card_due_at: timedelta | None = None
        self._gained_at = self._granted_at = ZERO
        self._ask_while_waiting = False
        self._last_abdication: str | None = None
        self._last_verdict: Verdict | None = None
        self._trouble: str | None = None
        self._id_in_use = False
        self._undrained: tuple[int, timedelta] | None = (
            None  # the last term, while its end is being told; since
        )
        self._kept_waiting = False  # by that
        self.state: State = st.Outside()
        self.ended = False

    # --- asked by any thread ----------------------------------------------------------------------

    def leadership(self) -> Leadership | None:
        """The leadership, if it certainly stands at this moment. No I/O."""
        granted = self._granted
        return granted if granted is not None and self._tenure.stands() else None

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
            trouble=self._trouble or (None if latch is None else latch.trouble),
            paused=self._eligibility.paused,
            everybody_declines=self._consensus.everybody_declines,
            leading_for=None if self._granted is None else self._clock() - self._granted_at,
            proof_age=self._tenure.proof_age(),
            time_left=None if self._granted is None else self._tenure.remaining(),
        )

    # --- driven -----------------------------------------------------------------------------------

    @property
    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        if self.ended:
            return None
        latch = None if self._latch is None else self._latch.due_at
        times = [at for at in (self._due_at, self._card_due_at, latch) if at is not None]
        return min(times, default=None)

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired. It says "look again"; but of a latch node, that it is gone."""
        if path in (self.paths.leader, self.paths.control) and isinstance(self.state, st.Leading):
            yield from self.handle(ev.Nudged())
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
        yield from self._settle(self._through_latch(event))

    def link(self, event: LinkEvent) -> Steps[None]:
        """The session changed its state."""
        if isinstance(event, latch_ev.SessionGone | latch_ev.LinkUp):
            self._card_due_at = self._clock()
        if self._latch is not None:
            yield from self._settle(self._through_latch(event))
        if isinstance(event, latch_ev.LinkUp):
            yield from self._keep_card()

    def expired(self) -> Steps[None]:
        """`due_at` has come."""
        now = self._clock()
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            yield from self.handle(ev.Due())
        latch = self._latch
        if latch is not None and latch.due_at is not None and latch.due_at <= now:
            latch.due_at = None
            yield from self._settle(self._through_latch(latch_ev.Due()))
        if self._card_due_at is not None and self._card_due_at <= now:
            self._card_due_at = None
            yield from self._keep_card(look=True)

    def readiness(
        self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]
    ) -> Steps[None]:
        """Our readiness has changed; the others shall know."""
        if self._card.ready(ready, missing, missing_bytes, reasons):
            yield from self.handle(ev.Poked())
        yield from self._keep_card()

    def handle(self, event: Posted) -> Steps[None]:
        """Step through `event` and through all it leads to."""
        if isinstance(event, ev.GuardAnswered):
            answer = self._questions.answered(event.verdict)
            if answer is None:
                return
            event = ev.GuardSaid(*answer)
        if isinstance(event, ev.AddAsked) and self._config.nofailover:
            return  # it shows its card, and never stands in the queue
        if isinstance(event, ev.GuardSaid):
            event = yield from self._weighed(event)
        yield from self._settle(self._stepped(event))
        if isinstance(event, ev.Drained):
            yield from self._drained(event.epoch)
        if isinstance(event, ev.GuardSaid | ev.Drained):
            yield from self._keep_card()

    def waits(self) -> None:
        """A request is on its way. If it is a claim's, the guard may be asked meanwhile."""
        if self._ask_while_waiting:
            self._ask_while_waiting = False
            self._questions.ask_early()

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
                pending.append(ev.Troubled(str(exc)) if exc.retryable else ev.Crashed(str(exc)))
            except Exception as exc:  # noqa: BLE001 - never silence: leadership ends, a retry follows
                _log.exception("election_failed", state=type(self.state).__name__)
                pending.append(ev.Crashed(f"{type(exc).__name__}: {exc}"))
            while self._news:
                pending.append(self._in_office_words(*self._news.popleft()))
            current = self._stepped(pending.popleft()) if pending else None

    def _stepped(self, event: Event) -> Steps[list[Event]]:
        before = self.state
        self._note(event)
        if isinstance(event, ev.LatchEnded):
            yield from self._unpublish()
        moved = machine.step(before, event)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self._due_at = None
            self._journal.moved(Move.between("office", before, moved.state, event))
            if isinstance(moved.state, st.Leaving | st.BackingOff):
                self._last_abdication = moved.state.reason
            if st.Outside in (type(before), type(moved.state)):
                self._card.queues(not isinstance(moved.state, st.Outside))
                self._card_due_at = self._clock()  # the others shall know
        for effect in moved.effects:
            answers = yield from self._perform(effect)
            if answers:
                return answers
        return []

    def _perform(self, effect: Effect) -> Steps[list[Event]]:
        match effect:
            case do.StartLatch():
                return (yield from self._start_latch())
            case do.CloseLatch(reason):
                if self._latch is None:
                    return [ev.LatchEnded()]
                return (yield from self._through_latch(latch_ev.CloseAsked(reason)))
            case do.Publish(leadership):
                return (yield from self._publish(leadership))
            case do.Grant(leadership):
                return self._grant(leadership)
            case do.End():
                yield from self._end()
            case do.AskGuard(epoch):
                self._ask_while_waiting = False
                self._questions.ask(epoch, early_counts=self._claimant.inherited)
            case do.Revoke(_, reason):
                self._revoke(reason)
            case do.SetTimer(timer, count):
                self._due_at = self._clock() + self._delay(timer, count)
            case _:
                assert_never(effect)
        return []

    def _through_latch(self, event: latch_ev.Event) -> Steps[list[Event]]:
        if self._latch is not None:
            yield from self._latch.handle(event)
        return []

    def _start_latch(self) -> Steps[list[Event]]:
        """Publish the new latch before it is started: its news must find it, not a closed one (Storm)."""
        if self._session.is_connected:
            try:
                yield from self._card.keep()
            except ParticipantIdInUseError as exc:
                self._note_id_in_use(exc)
                return [ev.LatchHeldBack(str(exc))]
            except Exception as exc:  # noqa: BLE001 - it informs, no more: the latch has its own way through trouble
                self._card_trouble(exc)
            else:
                self._id_in_use = False
        self._latch = LatchCore(
            session=self._session,
            queue=self.paths.queue,
            data=encode_id(self._participant),
            claimant=self._claimant,
            tenure=self._tenure,
            clock=self._clock,
            uniform=self._uniform,
            retry_max=self._config.retry_max,
            tell=lambda news: self._news.append((news, self._claimant.leadership)),
            journal=self._journal,
        )
        return (yield from self._through_latch(latch_ev.Started()))

    def _in_office_words(self, news: latch_news.News, term: Leadership | None) -> Event:
        """Several pieces of news may have come together: lost, and gained again."""
        match news:
            case latch_news.Gained():
                self._gained_at = self._clock()
                return ev.LatchGained(term) if term is not None else ev.Crashed("a lock without an epoch")
            case latch_news.Lost(reason):
                self._claimant.forget(term)
                return ev.LatchLost(reason)
            case latch_news.HeldBack(reason, at_once):
                return ev.LatchHeldBack(reason, at_once)
            case latch_news.Ended():
                self._claimant.forget(self._claimant.leadership)
                self._latch = None
                return ev.LatchEnded()
            case _:
                assert_never(news)

    def _ask_early(self) -> str | None:
        self._questions.claim_begins()
        if self._electable_hangs():  # it would not hear that it leads
            self._kept_waiting = True
            return "the electable still hangs in revoked() of its last term"
        if self._questions.hangs:  # no epoch is spent on a question that cannot be asked
            return "the guard still hangs in an earlier question"
        self._ask_while_waiting = True
        return None

    def _weighed(self, said: ev.GuardSaid) -> Steps[ev.GuardSaid]:
        """Let a long silence of everybody overrule the guard, where that is wanted."""
        verdict = said.verdict
        self._last_verdict = verdict
        self._journal.judged(said.epoch, verdict, self._clock() - self._questions.asked_at)
        self._card.judged(verdict.ready, verdict.reasons)
        if verdict.ready:
            self._consensus.somebody_leads()
            return said
        try:
            forced = yield from self._consensus.overrules(self._card.card, self._clock())
        except Exception as exc:  # noqa: BLE001 - who does not know the others goes by the guard alone
            _log.warning("peers_unread", error=str(exc))
            return said
        if not forced or self._config.gate_policy is not GatePolicy.FORCED:
            return said
        _log.warning("takeover_forced", epoch=said.epoch, reasons=list(verdict.reasons))
        return ev.GuardSaid(said.epoch, Verdict(True, verdict.reasons, verdict.guard))

    def _grant(self, leadership: Leadership) -> list[Event]:
        if not self._tenure.stands():
            return [ev.LatchLost("the lock was lost while the guard was asked")]
        self._granted, self._granted_at = leadership, self._clock()
        self._card.leads(True)
        self._last_abdication = None
        self._eligibility.settled()
        self._consensus.somebody_leads()
        self._journal.granted(leadership.epoch, self._granted_at - self._gained_at)
        self._notifier.elected(leadership)
        return []

    def _revoke(self, reason: str) -> None:
        leadership, self._granted = self._granted, None
        if leadership is None:
            return
        self._card.leads(False)
        self._last_abdication = reason
        self._journal.revoked(leadership.epoch, reason)
        self._undrained = (leadership.epoch, self._clock())
        drained = ev.Drained(leadership.epoch)
        self._notifier.revoked(leadership, reason, lambda: self._post(drained))

    def _drained(self, epoch: int) -> Steps[None]:
        if self._undrained is None or self._undrained[0] != epoch:
            return
        self._undrained = None
        if self._kept_waiting:
            self._kept_waiting = False
            yield from self._settle(self._stepped(ev.Poked()))

    def _electable_hangs(self) -> bool:
        patience = max(self._config.handover_timeout, self._config.guard_timeout)
        return self._undrained is not None and self._clock() - self._undrained[1] >= patience

    def _publish(self, leadership: Leadership) -> Steps[list[Event]]:
        session_id = self._session.session_id or 0
        refused = yield from self._announcement.keep(leadership, session_id)
        if refused is not None:
            return [ev.Refused(refused)]
        control = yield from self._eligibility.refresh()
        latch = self._latch
        if latch is not None and isinstance(latch.state, latch_st.Holding):
            yield from self._claimant.find_successor(latch.state.node)
        wish = yield from see_to(self.paths, control, leadership)
        if wish is not None:
            what = f"switchover to {wish.to}" if wish.to else "abdication"
            reason = f"{what}: {wish.reason}"
            return [ev.AbdicationAsked(reason, leadership.epoch, at_once=bool(wish.to))]
        return []

    def _unpublish(self) -> Steps[None]:
        """Take away a leader node of ours that the farewell could not, as after an epoch that is over."""
        claimant = self._claimant
        left, claimant.announced = claimant.announced and not claimant.took_it_along, False
        claimant.took_it_along = False
        session_id = self._session.session_id
        if not left or session_id is None:
            return
        try:
            yield from self._announcement.withdraw(session_id)
        except Exception as exc:  # noqa: BLE001 - the next leader writes over it, or our session's end takes it
            _log.info("leader_node_left_behind", error=str(exc))

    def _keep_card(self, *, look: bool = False) -> Steps[None]:
        """Write our card, if need be. It informs; nothing depends on it but who yields to whom.

        Args:
            look: Whether to see first what others may have done to it.
        """
        if not self._session.is_connected or isinstance(self.state, st.Closed):
            return
        if self._card_due_at is None:
            self._card_due_at = self._clock() + self._session.negotiated_timeout * _CARD_PATROL
        try:
            if look:
                yield from self._card.look()
            yield from self._card.keep()
        except ParticipantIdInUseError as exc:
            self._note_id_in_use(exc)
            yield from self._settle(self._stepped(ev.LatchHeldBack(str(exc))))
        except Exception as exc:  # noqa: BLE001 - it informs, no more
            self._card_trouble(exc)
        else:
            if self._id_in_use:
                self._id_in_use, self._trouble = False, None
                yield from self._settle(self._stepped(ev.Poked()))  # there is no need to wait any longer

    def _note_id_in_use(self, exc: ParticipantIdInUseError) -> None:
        self._id_in_use, self._trouble = True, str(exc)
        self._card_due_at = self._clock() + self._session.negotiated_timeout / 4

    def _card_trouble(self, exc: Exception) -> None:
        _log.warning("card_not_written", error=str(exc))
        self._card_due_at = self._clock() + self._session.negotiated_timeout / 4

    def _end(self) -> Steps[None]:
        self.ended = True
        if self._session.is_connected:
            try:
                yield from self._card.withdraw()
            except Exception as exc:  # noqa: BLE001 - nothing is left to do about it
                _log.info("card_left_to_session_end", error=str(exc))

    def _delay(self, timer: Timer, count: int) -> timedelta:
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
                return min(pause, self._consensus.time_until_forced(self._clock(), pause))

    def _note(self, event: Event) -> None:
        """Keep for the status what the state does not hold."""
        match event:
            case ev.Troubled(reason) | ev.Crashed(reason) | ev.Refused(reason):
                self._trouble = reason
                _log.warning("election_trouble", state=type(self.state).__name__, reason=reason)
            case ev.LatchGained():
                self._trouble = None
            case _:
                return
