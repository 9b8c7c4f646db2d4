"""Laws of the latch's machine, held against random histories."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as some

from leader.core.latch import effects as do
from leader.core.latch import events as ev
from leader.core.latch import states as st
from leader.core.latch.machine import SuspendedPolicy, step
from leader.core.latch.states import Node, Place, State
from tests.thorough import examples

sessions = some.integers(1, 2)
reasons = some.sampled_from(["x", "y"])
nodes = some.builds(Node, some.sampled_from(["l1", "l2"]), sessions)
names = some.sampled_from(["before", "l1", "other"])
places = some.sampled_from([Place(0), Place(1, "before"), Place(2, "before")])
policies = some.sampled_from(SuspendedPolicy)

outside: some.SearchStrategy[ev.Event] = some.one_of(
    some.builds(ev.LinkUp, sessions),
    some.just(ev.LinkDown()),
    some.just(ev.SessionGone()),
    some.just(ev.WatchFired()),
    some.builds(ev.NodeGone, names),
    some.just(ev.Due()),
    some.just(ev.CloseAsked()),
)
failures: some.SearchStrategy[ev.Event] = some.builds(ev.CallFailed, reasons) | some.builds(
    ev.Crashed, reasons
)
anything: some.SearchStrategy[ev.Event] = some.one_of(
    outside,
    failures,
    some.just(ev.Started()),
    some.builds(ev.Joined, nodes),
    some.builds(ev.SawSelf, places),
    some.sampled_from([ev.LatchGone(), ev.Claimed(), ev.Proven(), ev.Withdrawn()]),
    some.builds(ev.Refused, reasons),
    some.builds(ev.Barred, reasons),
    some.builds(ev.Postponed, reasons),
)


class Witness:
    """Watches a history and raises when a law is broken."""

    def __init__(self) -> None:
        self.held = False
        self.ended = False

    def saw(self, before: State, event: ev.Event, after: State, effects: tuple[do.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case do.Gain():
                    assert isinstance(before, st.Claiming), "gained without a claim"
                    assert event == ev.Claimed(), "gained without a committed write"
                    assert not self.held, "gained twice"
                    self.held = True
                case do.Lose():
                    assert self.held, "lost what was not held"
                    self.held = False
                case do.End():
                    assert not self.held, "ended with the lock held"
                    assert not self.ended, "ended twice"
                    assert isinstance(before, st.Latent) or event == ev.Withdrawn(), "a node was forgotten"
                    self.ended = True
                case _:
                    pass
        counts = isinstance(after, st.Holding) or (isinstance(after, st.Suspended) and after.held)
        assert self.held == counts, "the state and what the owner was told differ"
        answered = [isinstance(effect, do.Question) for effect in effects]
        assert sum(answered[:-1]) == 0, "at most one question, and last"


def hopeful(state: State) -> ev.Event:
    """The event that brings this state closer to the lock; chance alone would seldom get there."""
    match state:
        case st.Latent():
            return ev.Started()
        case st.Joining():
            return ev.Joined(Node("l1", 1))
        case st.Waiting(place=Place(1, before)) if before is not None:
            return ev.NodeGone(before)
        case st.Waiting():
            return ev.SawSelf(Place(0))
        case st.Claiming():
            return ev.Claimed()
        case st.Holding():
            return ev.Due()
        case st.Suspended():
            return ev.LinkUp(1)
        case st.Withdrawing():
            return ev.Withdrawn()
        case st.Closed():
            return ev.WatchFired()


@given(policies, some.lists(some.tuples(some.integers(0, 3), anything), max_size=60))
@settings(max_examples=examples(600), deadline=None)
def test_whatever_happens_the_lock_is_gained_by_committed_writes_alone_and_told_of_in_turn(
    policy: SuspendedPolicy, history: list[tuple[int, ev.Event]]
) -> None:
    state: State = st.Latent()
    witness = Witness()
    for luck, chance in history:
        event = hopeful(state) if luck else chance
        moved = step(state, event, policy)
        witness.saw(state, event, moved.state, moved.effects)
        state = moved.state


class World:
    """The core, reduced: it answers questions as ZooKeeper might, and keeps the timer."""

    def __init__(
        self, policy: SuspendedPolicy, choose: Callable[[list[some.SearchStrategy[ev.Event]]], ev.Event]
    ) -> None:
        self.policy, self.choose = policy, choose
        self.state: State = st.Latent()
        self.witness = Witness()
        self.timer = False
        self.history: list[str] = []

    def tell(self, event: ev.Event) -> None:
        todo: list[ev.Event] = [event]
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
                self.timer = self.timer or isinstance(effect, do.SetTimer)
                if isinstance(effect, do.Question):
                    answer = self.choose(self._answers(effect))
                    todo += [] if answer == ev.Started() else [answer]
        raise AssertionError(f"goes round without end: {self.history[-10:]}")

    def _answers(self, question: do.Question) -> list[some.SearchStrategy[ev.Event]]:
        """The answer one hopes for, then the others."""
        refused = some.builds(ev.Refused, reasons) | some.just(ev.LatchGone())
        vetoed = some.builds(ev.Barred, reasons) | some.builds(ev.Postponed, reasons)
        match question:
            case do.Join():
                return [some.just(ev.Joined(Node("l1", 1)))]
            case do.Look():
                return [some.just(ev.SawSelf(Place(0))), some.builds(ev.SawSelf, places), refused]
            case do.Claim():
                return [some.just(ev.Claimed()), refused, vetoed]
            case do.Prove():
                return [some.just(ev.Proven()), refused]
            case do.Withdraw():
                return [some.just(ev.Withdrawn())]
            case do.Probe():
                return [some.builds(ev.LinkUp, sessions), some.just(ev.Started())]


@given(policies, some.data())
@settings(max_examples=examples(400), deadline=None)
def test_no_state_of_a_latch_waits_in_silence_and_closing_always_ends(
    policy: SuspendedPolicy, data: some.DataObject
) -> None:
    def answer(answers: list[some.SearchStrategy[ev.Event]]) -> ev.Event:
        hoped, *others = answers
        drawn: ev.Event = data.draw(
            hoped if data.draw(some.integers(0, 5)) else some.one_of(failures, *others)
        )
        return drawn

    world = World(policy, answer)
    world.tell(ev.Started())
    for event in data.draw(some.lists(outside, max_size=25)):
        if not isinstance(event, ev.Due):
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
    assert not world.witness.held
