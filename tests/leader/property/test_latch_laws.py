"""Laws of the latch's machine, checked with random histories."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as some

from leader.core.latch import model as m
from leader.core.latch.machine import SuspendedPolicy, step
from leader.core.latch.model import Node, Place, State
from tests.thorough import examples

sessions = some.integers(1, 2)
reasons = some.sampled_from(["x", "y"])
nodes = some.builds(Node, some.sampled_from(["l1", "l2"]), sessions)
names = some.sampled_from(["before", "l1", "other"])
places = some.sampled_from([Place(0), Place(1, "before"), Place(2, "before")])
policies = some.sampled_from(SuspendedPolicy)

outside: some.SearchStrategy[m.Event] = some.one_of(
    some.builds(m.LinkUp, sessions),
    some.just(m.LinkDown()),
    some.just(m.SessionGone()),
    some.just(m.QueueChanged()),
    some.builds(m.NodeGone, names),
    some.just(m.TimerDue()),
    some.just(m.LatchCloseAsked()),
)
failures: some.SearchStrategy[m.Event] = some.builds(m.CallFailed, reasons)
anything: some.SearchStrategy[m.Event] = some.one_of(
    outside,
    failures,
    some.just(m.Started()),
    some.builds(m.Joined, nodes),
    some.builds(m.SawSelf, places),
    some.sampled_from([m.LatchGone(), m.Claimed(), m.Proven(), m.Withdrawn()]),
    some.builds(m.Refused, reasons),
    some.builds(m.Barred, reasons),
    some.builds(m.Postponed, reasons),
)


class Witness:
    """Watches a history and raises when a law is broken."""

    def __init__(self) -> None:
        self.held = False
        self.ended = False

    def saw(self, before: State, event: m.Event, after: State, effects: tuple[m.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case m.Gained():
                    assert isinstance(before, m.Claiming), "gained without a claim"
                    assert event == m.Claimed(), "gained without a committed write"
                    assert not self.held, "gained twice"
                    self.held = True
                case m.LatchLost():
                    assert self.held, "lost what was not held"
                    self.held = False
                case m.LatchEnded():
                    assert not self.held, "ended with the lock held"
                    assert not self.ended, "ended twice"
                    assert isinstance(before, m.Latent) or event == m.Withdrawn(), "a node was forgotten"
                    self.ended = True
                case _:
                    pass
        counts = isinstance(after, m.Holding) or (isinstance(after, m.Suspended) and after.held)
        assert self.held == counts, "the state and what the owner was told differ"
        answered = [isinstance(effect, m.Question) for effect in effects]
        assert sum(answered[:-1]) == 0, "at most one question, and last"


def hopeful(state: State) -> m.Event:
    """The event that brings this state closer to the lock. Random events alone rarely reach it."""
    match state:
        case m.Latent():
            return m.Started()
        case m.Joining():
            return m.Joined(Node("l1", 1))
        case m.Waiting(place=Place(1, before)) if before is not None:
            return m.NodeGone(before)
        case m.Waiting():
            return m.SawSelf(Place(0))
        case m.Claiming():
            return m.Claimed()
        case m.Holding():
            return m.TimerDue()
        case m.Suspended():
            return m.LinkUp(1)
        case m.Withdrawing():
            return m.Withdrawn()
        case m.LatchClosed():
            return m.QueueChanged()


@given(policies, some.lists(some.tuples(some.integers(0, 3), anything), max_size=60))
@settings(max_examples=examples(600), deadline=None)
def test_whatever_happens_the_lock_is_gained_by_committed_writes_alone_and_told_of_in_turn(
    policy: SuspendedPolicy, history: list[tuple[int, m.Event]]
) -> None:
    state: State = m.Latent()
    witness = Witness()
    for luck, chance in history:
        event = hopeful(state) if luck else chance
        moved = step(state, event, policy)
        witness.saw(state, event, moved.state, moved.effects)
        state = moved.state


class World:
    """A reduced core: it answers requests like ZooKeeper, and keeps the timer."""

    def __init__(
        self, policy: SuspendedPolicy, choose: Callable[[list[some.SearchStrategy[m.Event]]], m.Event]
    ) -> None:
        self.policy, self.choose = policy, choose
        self.state: State = m.Latent()
        self.witness = Witness()
        self.timer = False
        self.history: list[str] = []

    def tell(self, event: m.Event) -> None:
        todo: list[m.Event] = [event]
        for _ in range(50):
            if not todo:
                return
            event = todo.pop(0)
            moved = step(self.state, event, self.policy)
            self.history.append(f"{type(self.state).__name__} {event}")
            self.witness.saw(self.state, event, moved.state, moved.effects)
            if type(moved.state) is not type(self.state):
                self.timer = False
            self.state = moved.state
            for effect in moved.effects:
                self.timer = self.timer or isinstance(effect, m.SetLatchTimer)
                if isinstance(effect, m.Question):
                    answer = self.choose(self._answers(effect))
                    todo += [] if answer == m.Started() else [answer]
        raise AssertionError(f"goes round without end: {self.history[-10:]}")

    def _answers(self, question: m.Question) -> list[some.SearchStrategy[m.Event]]:
        """The successful answer first, then the others."""
        refused = some.builds(m.Refused, reasons) | some.just(m.LatchGone())
        vetoed = some.builds(m.Barred, reasons) | some.builds(m.Postponed, reasons)
        match question:
            case m.Join():
                return [some.just(m.Joined(Node("l1", 1)))]
            case m.ReadQueue():
                return [some.just(m.SawSelf(Place(0))), some.builds(m.SawSelf, places), refused]
            case m.TakeLock():
                return [some.just(m.Claimed()), refused, vetoed]
            case m.Prove():
                return [some.just(m.Proven()), refused]
            case m.Withdraw():
                return [some.just(m.Withdrawn())]
            case m.Probe():
                return [some.builds(m.LinkUp, sessions), some.just(m.Started())]


@given(policies, some.data())
@settings(max_examples=examples(400), deadline=None)
def test_no_state_of_a_latch_waits_in_silence_and_closing_always_ends(
    policy: SuspendedPolicy, data: some.DataObject
) -> None:
    def answer(answers: list[some.SearchStrategy[m.Event]]) -> m.Event:
        hoped, *others = answers
        drawn: m.Event = data.draw(
            hoped if data.draw(some.integers(0, 5)) else some.one_of(failures, *others)
        )
        return drawn

    world = World(policy, answer)
    world.tell(m.Started())
    for event in data.draw(some.lists(outside, max_size=25)):
        if not isinstance(event, m.TimerDue):
            world.tell(event)
        elif world.timer:
            world.timer = False
            world.tell(event)
        if isinstance(world.state, m.LatchClosed):
            break
        assert world.timer, f"{world.state} waits for nothing: {world.history[-5:]}"

    world.choose = lambda answers: data.draw(answers[0])  # ZooKeeper works again
    world.tell(m.LatchCloseAsked())
    assert world.state == m.LatchClosed()
    assert not world.witness.held
