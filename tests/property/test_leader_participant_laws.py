"""Laws of the participant's machine, held against random histories."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from leader import FencingToken, Leadership, Participant, Verdict
from leader.core.participant import effects as do
from leader.core.participant import events as ev
from leader.core.participant import states as st
from leader.core.participant.machine import step
from leader.core.participant.states import State
from tests.thorough import examples

SELF = Participant("a", "h", 1, "b")

epochs = some.integers(1, 3)
reasons = some.sampled_from(["x", "y"])
verdicts = some.builds(Verdict, some.booleans())


def term(epoch: int) -> Leadership:
    return Leadership(epoch, FencingToken("/e", epoch, epoch, "/l"), SELF)


anything: some.SearchStrategy[ev.Event] = some.one_of(
    some.sampled_from(
        [
            ev.AddAsked(),
            ev.RemoveAsked(),
            ev.CloseAsked(),
            ev.Poked(),
            ev.WatchFired(),
            ev.Due(),
            ev.LatchEnded(),
        ]
    ),
    some.builds(ev.AbdicationAsked, reasons, some.none() | epochs, some.booleans()),
    some.builds(ev.LatchGained, epochs.map(term)),
    some.builds(ev.LatchLost, reasons),
    some.builds(ev.LatchVetoed, reasons, some.booleans()),
    some.builds(ev.GuardSaid, epochs, verdicts),
    some.builds(ev.Drained, epochs),
    some.builds(ev.Refused, reasons),
    some.builds(ev.CallFailed, reasons),
    some.builds(ev.Crashed, reasons),
)


class Witness:
    """Watches a history and raises when a law is broken."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self.leads: Leadership | None = None
        self.latch = False
        self.timer = False

    def saw(self, before: State, event: ev.Event, after: State, effects: tuple[do.Effect, ...]) -> None:
        if type(before) is not type(after):
            self.timer = False
        if event == ev.LatchEnded():
            self.latch = False
        for effect in effects:
            self._note(effect, event)
        assert (self.leads is not None) == isinstance(after, st.Leading), "Leading and granted are the same"
        if isinstance(after, st.Closed):
            assert not self.latch, "closed with a latch"

    def _note(self, effect: do.Effect, event: ev.Event) -> None:
        match effect:
            case do.AskGuard(epoch):
                self.asked = epoch
            case do.Grant(leadership):
                assert self.leads is None, "granted twice"
                assert isinstance(event, ev.GuardSaid), "granted without the guard"
                assert event.verdict.ready, "granted though the guard said no"
                assert event.epoch == leadership.epoch == self.asked, "granted on another question's answer"
                self.leads = leadership
            case do.Revoke(leadership, _):
                assert self.leads == leadership, "revoked what was not granted"
                self.leads = None
            case do.StartLatch():
                assert not self.latch, "a second latch while the first lives"
                self.latch = True
            case do.CloseLatch():
                assert self.leads is None, "the lock is let go while we lead"
            case do.SetTimer():
                self.timer = True
            case do.Publish() | do.PublishSoon() | do.End():
                pass


def hopeful(state: State, epoch: int, *, ready: bool = True, late: bool = False) -> ev.Event:
    """The event that brings this state closer to leading, if the guard is `ready` and not `late`."""
    match state:
        case st.Outside() | st.BackingOff():
            return ev.AddAsked()
        case st.InLine():
            return ev.LatchGained(term(epoch))
        case st.Guarding(leadership):
            return ev.GuardSaid(leadership.epoch - late, Verdict(ready))
        case st.Leading() | st.Closed():
            return ev.WatchFired()
        case st.Draining(leadership):
            return ev.Drained(leadership.epoch)
        case st.Leaving():
            return ev.LatchEnded()


def possible(state: State, event: ev.Event, latch: bool) -> bool:
    """Whether our parts could say this now: a latch that is not there says nothing."""
    if isinstance(event, ev.LatchGained):
        return isinstance(state, st.InLine)
    return latch or not isinstance(event, ev.LatchEnded | ev.LatchLost | ev.LatchVetoed)


@given(some.lists(some.tuples(some.integers(0, 4), anything), max_size=60))
@settings(max_examples=examples(800), deadline=None)
def test_whatever_happens_nobody_leads_without_the_guards_yes_in_that_epoch_and_one_latch_lives(
    history: list[tuple[int, ev.Event]],
) -> None:
    state: State = st.Outside()
    witness = Witness()
    for number, (luck, chance) in enumerate(history):
        event = hopeful(state, number, ready=luck != 1, late=luck == 2) if luck else chance
        if not possible(state, event, witness.latch):
            continue
        moved = step(state, event)
        witness.saw(state, event, moved.state, moved.effects)
        state = moved.state
        if isinstance(state, st.Guarding | st.Draining | st.BackingOff):
            assert witness.timer, f"{state} waits for nothing"
        if isinstance(state, st.InLine | st.Leaving):
            assert witness.latch, f"{state} without a latch"

    closing = step(state, ev.CloseAsked())
    state = closing.state
    for _ in range(5):
        state = step(state, hopeful(state, 99)).state if not isinstance(state, st.Closed) else state
    assert isinstance(state, st.Closed)
