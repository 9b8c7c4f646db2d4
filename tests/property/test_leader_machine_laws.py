"""Laws of the elector's machine, held against random histories."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as some

from leader import effects as do
from leader import events as ev
from leader import states as st
from leader.fencing import FencingToken
from leader.machine import step
from leader.protocol.records import Leadership, Participant
from leader.states import Latch, State

SELF = Participant("a", "h", 1, "b")

sessions = some.integers(1, 2)
epochs = some.integers(1, 3)
reasons = some.sampled_from(["x", "y"])
latches = some.builds(Latch, some.sampled_from(["l1", "l2"]), sessions)
leaderships = epochs.map(lambda epoch: Leadership(epoch, FencingToken("/e", epoch, epoch), SELF))

outside: some.SearchStrategy[ev.Event] = some.one_of(
    some.builds(ev.LinkUp, sessions),
    some.just(ev.LinkDown()),
    some.just(ev.SessionGone()),
    some.just(ev.Nudged()),
    some.just(ev.Poked()),
    some.builds(ev.AbdicationAsked, reasons, some.none() | epochs),
    some.just(ev.Due()),
    some.builds(ev.GuardSaid, epochs, some.booleans()),
    some.just(ev.CloseAsked()),
)
failures: some.SearchStrategy[ev.Event] = some.builds(ev.Troubled, reasons) | some.builds(ev.Crashed, reasons)
anything: some.SearchStrategy[ev.Event] = some.one_of(
    outside,
    failures,
    some.just(ev.Started()),
    some.builds(ev.Joined, latches),
    some.builds(ev.SawSelf, some.integers(0, 2)),
    some.just(ev.LatchGone()),
    some.builds(ev.EpochTaken, leaderships),
    some.just(ev.Announced()),
    some.just(ev.Proven()),
    some.builds(ev.Refused, reasons),
    some.builds(ev.Barred, reasons),
    some.just(ev.Withdrawn()),
)


tempting: some.SearchStrategy[ev.Event] = some.sampled_from(
    [
        ev.GuardSaid(2, False),
        ev.GuardSaid(1, True),
        ev.Announced(),
        ev.Due(),
        ev.LinkDown(),
        ev.LinkUp(1),
        ev.Troubled("x"),
        ev.AbdicationAsked("x"),
    ]
)
"""What a careless machine would take for a yes, or would overlook."""


class Witness:
    """Watches a history and raises when a law is broken."""

    def __init__(self) -> None:
        self.asked: set[int] = set()
        self.passed: set[int] = set()
        self.announcing: Leadership | None = None
        self.leads: Leadership | None = None

    def saw(self, before: State, event: ev.Event, after: State, effects: tuple[do.Effect, ...]) -> None:
        match before, event:
            case st.Guarding(leadership=asked), ev.GuardSaid(epoch, True) if epoch == asked.epoch:
                self.passed.add(epoch)
        for effect in effects:
            self._note(effect)
        assert (self.leads is not None) == isinstance(after, st.Leading), "Leading and granted are the same"
        if isinstance(after, st.Leading):
            assert self.leads == after.leadership
        answered = [isinstance(effect, do.Question) for effect in effects]
        assert sum(answered[:-1]) == 0, "at most one question, and last"

    def _note(self, effect: do.Effect) -> None:
        match effect:
            case do.AskGuard(epoch):
                self.asked.add(epoch)
                self.passed.discard(epoch)  # an older yes for this number counts no more
            case do.Announce(_, leadership):
                self.announcing = leadership
            case do.Grant(leadership):
                assert self.leads is None, "granted twice"
                assert leadership.epoch in self.asked & self.passed, "granted without the guard's yes"
                assert self.announcing == leadership, "granted before it was announced"
                self.leads, self.announcing = leadership, None
            case do.Revoke(leadership, _, _):
                assert self.leads == leadership, "revoked what was not granted"
                self.leads = None
            case _:
                return


def hopeful(state: State) -> ev.Event:  # noqa: C901 - one branch for each state
    """The event that brings this state closer to leading; chance alone would seldom get there."""
    match state:
        case st.Latent():
            return ev.Started()
        case st.Joining():
            return ev.Joined(Latch("l1", 1))
        case st.Queued():
            return ev.SawSelf(0)
        case st.Elected():
            return ev.EpochTaken(Leadership(2, FencingToken("/e", 2, 2), SELF))
        case st.Guarding():
            return ev.GuardSaid(state.leadership.epoch, True)
        case st.Confirming():
            return ev.Announced()
        case st.Leading() | st.BackingOff():
            return ev.Due()
        case st.Suspended():
            return ev.LinkUp(1)
        case st.Withdrawing():
            return ev.Withdrawn()
        case st.Closed():
            return ev.Nudged()


@given(some.lists(some.tuples(some.integers(0, 5), tempting, anything), max_size=60))
@settings(max_examples=600, deadline=None)
def test_whatever_happens_nobody_leads_without_the_guards_yes_in_that_epoch(
    history: list[tuple[int, ev.Event, ev.Event]],
) -> None:
    state: State = st.Latent()
    witness = Witness()
    for luck, temptation, chance in history:
        event = hopeful(state) if luck > 1 else temptation if luck else chance
        moved = step(state, event)
        witness.saw(state, event, moved.state, moved.effects)
        state = moved.state


class World:
    """The shell, reduced: it answers questions as ZooKeeper might, and keeps the timer."""

    def __init__(self, choose: Callable[[list[some.SearchStrategy[ev.Event]]], ev.Event]) -> None:
        self.choose = choose
        self.state: State = st.Latent()
        self.witness = Witness()
        self.timer = False
        self.epoch = 0
        self.history: list[str] = []

    def tell(self, event: ev.Event) -> None:
        todo: list[ev.Event] = [event]
        for _ in range(50):
            if not todo:
                return
            event = todo.pop(0)
            moved = step(self.state, event)
            self.history.append(f"{type(self.state).__name__} {event}")
            self.witness.saw(self.state, event, moved.state, moved.effects)
            if type(moved.state) is not type(self.state):
                self.timer = False
            self.state = moved.state
            for effect in moved.effects:
                todo += self._perform(effect)
        raise AssertionError(f"goes round without end: {self.history[-10:]}")

    def _perform(self, effect: do.Effect) -> list[ev.Event]:
        if isinstance(effect, do.SetTimer):
            self.timer = True
        if not isinstance(effect, do.Question):
            return []
        answer = self.choose(self._answers(effect))
        return [] if answer == ev.Started() else [answer]

    def _answers(self, question: do.Question) -> list[some.SearchStrategy[ev.Event]]:
        """The answer one hopes for, then the others."""
        silence = some.just(ev.Started())
        refused = some.builds(ev.Refused, reasons) | some.just(ev.LatchGone())
        match question:
            case do.Join():
                return [some.just(ev.Joined(Latch("l1", 1)))]
            case do.Look():
                return [some.just(ev.SawSelf(0)), some.just(ev.SawSelf(1)), some.just(ev.LatchGone())]
            case do.TakeEpoch():
                self.epoch += 1
                leadership = Leadership(self.epoch, FencingToken("/e", self.epoch, self.epoch), SELF)
                return [some.just(ev.EpochTaken(leadership)), refused, some.builds(ev.Barred, reasons)]
            case do.Announce():
                return [some.just(ev.Announced()), refused]
            case do.KeepAnnounced():
                return [silence, refused]
            case do.Prove():
                return [some.just(ev.Proven()), refused]
            case do.Withdraw():
                return [some.just(ev.Withdrawn())]
            case do.Probe():
                return [some.builds(ev.LinkUp, sessions), silence]


@given(some.data())
@settings(max_examples=400, deadline=None)
def test_no_state_waits_in_silence_and_closing_always_ends(data: some.DataObject) -> None:
    def answer(answers: list[some.SearchStrategy[ev.Event]]) -> ev.Event:
        hoped, *others = answers
        drawn: ev.Event = data.draw(
            hoped if data.draw(some.integers(0, 5)) else some.one_of(failures, *others)
        )
        return drawn

    world = World(answer)
    world.tell(ev.Started())
    for event in data.draw(some.lists(outside | some.none(), max_size=25)):
        if event is None or isinstance(event, ev.GuardSaid):
            world.tell(ev.GuardSaid(world.epoch, event is None or event.ready))
        elif not isinstance(event, ev.Due):
            world.tell(event)
        elif world.timer:
            world.timer = False
            world.tell(event)
        if isinstance(world.state, st.Closed):
            break
        assert world.timer, f"{world.state} waits for nothing: {world.history[-5:]}"

    world.choose = lambda answers: data.draw(answers[0])  # ZooKeeper is well again
    world.tell(ev.CloseAsked())
    assert world.state == st.Closed()
    assert world.witness.leads is None
