"""One participant of an election, without thread and without I/O of its own.

`handle` takes an event, lets latch and office decide, and carries out what they want; what it needs from
ZooKeeper it yields. Whoever drives it sends the answers: a loop (`leader.loop`) over kazoo or over memory,
or the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

import structlog

from leader.backoff import Uniform
from leader.clock import Clock
from leader.config import ElectionConfig
from leader.errors import LeaderError
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
from leader.office.effects import Effect
from leader.office.events import Event, Posted
from leader.office.operators import see_to
from leader.office.ports import GuardPort, NotifierPort
from leader.office.questions import Questions
from leader.office.states import State
from leader.office.term import ConfirmedTerm
from leader.office.timers import Timers
from leader.office.upkeep import CardUpkeep
from leader.protocol.participant import Participant, encode_id
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Operation, Steps
from leader.protocol.terms import Leadership
from leader.status import ElectionStatus, epoch_of, phase_of, place_of
from leader.tenure import ZERO, Tenure

_log = structlog.get_logger(__name__)

_TROUBLE = (ev.Troubled, ev.Crashed, ev.Refused)
_FOR_THE_CARD = (ev.GuardSaid, ev.Drained, ev.Nudged)
_ABDICATED = (st.Leaving, st.BackingOff)
_PEACE = timedelta(milliseconds=10)
"""After a farewell: who comes next needs ZooKeeper, and perhaps this machine, more than we do."""

LinkEvent = latch_ev.LinkUp | latch_ev.LinkDown | latch_ev.SessionGone


class OfficeCore:
    """See the module. One driver at a time; `leadership` and `status` may be asked by any thread.

    Args:
        post: Puts an event into the driver's inbox; called when guard and electable have answered, too.
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
        self._journal, self._post = journal, post
        self._clock, self._uniform = clock, uniform
        self.paths = ElectionPaths(config.root)
        self._card = CardKeeper(
            self.paths, session, participant, reserve=-config.priority, nofailover=config.nofailover
        )
        self._upkeep = CardUpkeep(self._card, session, clock)
        self._eligibility = Eligibility(self.paths, lambda: self._card.card)
        self._questions = Questions(
            guard, lambda verdict: post(ev.GuardAnswered(verdict)), clock, config.guard_timeout
        )
        self._claimant = EpochClaimant(
            self.paths, participant, self._eligibility, config.newest_schema, self._ask_early
        )
        self._announcement = Announcement(self.paths, self._claimant)
        self._consensus = Consensus(self.paths, participant, config.forced_takeover_after, clock)
        self._timers = Timers(config, self._consensus, clock, uniform)
        self._tenure = Tenure(session, clock, config.step_down_margin)
        patience = max(config.handover_timeout, config.guard_timeout)
        self._term = ConfirmedTerm(self._tenure, notifier, journal, clock, patience)
        self._latch: LatchCore | None = None
        self._news: deque[tuple[latch_news.News, Leadership | None]] = deque()  # with the term it is about
        self._due_at: timedelta | None = None
        self._ask_while_waiting = self._to_publish = False
        self._last_abdication: str | None = None
        self._last_verdict: Verdict | None = None
        self._trouble: str | None = None
        self.state: State = st.Outside()
        self.ended = False

    # --- asked by any thread ----------------------------------------------------------------------

    def leadership(self) -> Leadership | None:
        """The leadership, if it certainly stands at this moment. No I/O."""
        return self._term.leadership()

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
            trouble=self._upkeep.trouble or self._trouble or (None if latch is None else latch.trouble),
            paused=self._eligibility.paused,
            everybody_declines=self._consensus.everybody_declines,
            leading_for=self._term.age(),
            proof_age=self._tenure.proof_age(),
            time_left=None if self._term.granted is None else self._tenure.remaining(),
        )

    # --- driven -----------------------------------------------------------------------------------

    @property
    def foreseen(self) -> tuple[Operation, ...]:
        """The transaction that will be in the greatest hurry: our farewell."""
        return self._claimant.foreseen

    @property
    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        if self.ended:
            return None
        if self._to_publish:
            return ZERO
        first, latch = self._due_at, self._latch
        for at in (self._upkeep.due_at, None if latch is None else latch.due_at):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired. It says "look again"; but of a latch node, that it is gone."""
        if isinstance(self.state, st.Leading) and path in (self.paths.leader, self.paths.control):
            yield from self.handle(ev.Nudged())
            return
        if path == self.paths.leader or self._latch is None:
            return
        if self._claimant.heard(path):
            place = place_of(self._latch.state)
            if place is not None and place.before is not None:
                self._questions.ask_anew()
                yield from self._settle(self._through_latch(latch_ev.NodeGone(place.before)))
            return
        of_latch = path.startswith(self.paths.queue)
        if not of_latch and not isinstance(self._latch.state, latch_st.Waiting):
            return  # of epoch, control or a card; who waits must know, who holds has its proofs
        event = self._latch.heard(path, gone and of_latch)
        if event is not None:
            yield from self._settle(self._through_latch(event))

    def link(self, event: LinkEvent) -> Steps[None]:
        """The session changed its state."""
        if isinstance(event, latch_ev.SessionGone | latch_ev.LinkUp):
            self._upkeep.soon()
        if self._latch is not None:
            yield from self._settle(self._through_latch(event))
        if isinstance(event, latch_ev.LinkUp):
            yield from self._keep_card()

    def expired(self) -> Steps[None]:
        """`due_at` has come."""
        if self._to_publish:
            self._to_publish = False
            yield from self.handle(ev.Nudged())
        now = self._clock()
        if self._due_at is not None and self._due_at <= now:
            self._due_at = None
            if isinstance(self.state, st.Closed):
                yield from self._end(after_peace=True)
                return
            yield from self.handle(ev.Due())
        latch = self._latch
        if latch is not None and latch.due_at is not None and latch.due_at <= now:
            latch.due_at = None
            yield from self._settle(self._through_latch(latch_ev.Due()))
        if self._upkeep.due_at is not None and self._upkeep.due_at <= now:
            self._upkeep.due_at = None
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
        if isinstance(event, ev.Drained) and self._term.drained(event.epoch):
            yield from self._settle(self._stepped(ev.Poked()))
        if isinstance(event, _FOR_THE_CARD) and not self._to_publish:
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
            yield from self._announcement.take_back(self._session.session_id)
        moved = machine.step(before, event)
        self.state = moved.state
        if type(before) is not type(moved.state):
            self._due_at = None
            self._journal.moved(Move("office", before, moved.state, event))
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
                self._due_at = self._timers.due_at(timer, count)
            case do.AskGuard(epoch):
                self._ask_while_waiting = False
                self._questions.ask(epoch, early_counts=self._claimant.inherited)
            case do.PublishNext():
                self._to_publish = True
            case do.Publish(leadership):
                return (yield from self._publish(leadership))
            case do.StartLatch():
                return (yield from self._start_latch())
            case do.End():
                yield from self._end(after_peace=False)
            case _:
                assert_never(effect)
        return []

    def _end(self, *, after_peace: bool) -> Steps[None]:
        if self._claimant.handed_over and not after_peace:
            self._due_at = self._clock() + _PEACE
            return
        self.ended = True
        yield from self._upkeep.withdraw()

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
        told = yield from self._upkeep.keep()
        if isinstance(told, ev.LatchHeldBack):
            return [told]
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
                self._term.lock_gained()
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

    def _ask_early(self, inherited: bool) -> str | None:
        if not inherited:
            self._questions.claim_begins()
        if self._term.hangs():
            return "the electable still hangs in revoked() of its last term"
        if self._questions.hangs:  # no epoch is spent on a question that cannot be asked
            return "the guard still hangs in an earlier question"
        self._ask_while_waiting = not inherited
        return None

    def _weighed(self, said: ev.GuardSaid) -> Steps[ev.GuardSaid]:
        """Let a long silence of everybody overrule the guard, where that is wanted."""
        verdict = said.verdict
        self._last_verdict = verdict
        self._journal.judged(said.epoch, verdict, self._clock() - self._questions.asked_at)
        self._card.judged(verdict.ready, verdict.reasons)
        return ev.GuardSaid(said.epoch, (yield from self._consensus.weighed(verdict, self._card.card)))

    def _grant(self, leadership: Leadership) -> list[Event]:
        if not self._term.grant(leadership):
            return [ev.LatchLost("the lock was lost while the guard was asked")]
        self._card.leads(True)
        self._last_abdication = None
        self._eligibility.settled()
        self._consensus.somebody_leads()
        return []

    def _revoke(self, reason: str) -> None:
        if self._term.revoke(reason, lambda epoch: self._post(ev.Drained(epoch))):
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
            what = f"switchover to {wish.to}" if wish.to else "abdication"
            reason = f"{what}: {wish.reason}"
            return [ev.AbdicationAsked(reason, leadership.epoch, at_once=bool(wish.to))]
        return []

    def _keep_card(self, *, look: bool = False) -> Steps[None]:
        if isinstance(self.state, st.Closed):
            return
        told = yield from self._upkeep.keep(look=look)
        if told is not None:
            yield from self._settle(self._stepped(told))

    def _note_change(self, before: State, after: State) -> None:
        """Tell others, and the status, what a change of state means."""
        if isinstance(after, _ABDICATED):
            self._last_abdication = after.reason
        was_out, is_out = isinstance(before, st.Outside), isinstance(after, st.Outside)
        if was_out or is_out:
            self._card.queues(not is_out)
            self._upkeep.soon()

    def _note(self, event: Event) -> None:
        """Keep for the status what the state does not hold."""
        if isinstance(event, ev.LatchGained):
            self._trouble = None
        elif isinstance(event, _TROUBLE):
            self._trouble = event.reason
            _log.warning("election_trouble", state=type(self.state).__name__, reason=event.reason)
