"""Laws of the participant's machine, checked with random histories."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from leader import FencingToken, Leadership, Participant, Verdict
from leader.core.participant import model as m
from leader.core.participant.machine import step
from leader.core.participant.model import State
from tests.thorough import examples

SELF = Participant("a", "h", 1, "b")

epochs = some.integers(1, 3)
reasons = some.sampled_from(["x", "y"])
verdicts = some.builds(Verdict, some.booleans())


def term(epoch: int) -> Leadership:
    return Leadership(epoch, FencingToken("/e", epoch, epoch, "/l"), SELF)


anything: some.SearchStrategy[m.Event] = some.one_of(
    some.sampled_from(
        [
            m.AddAsked(),
            m.RemoveAsked(),
            m.CloseAsked(),
            m.Poked(),
            m.WatchFired(),
            m.Published(),
            m.DelayOver(),
            m.LatchEnded(),
        ]
    ),
    some.builds(m.AbdicationAsked, reasons, some.none() | epochs, some.booleans()),
    some.builds(m.LatchGained, epochs.map(term)),
    some.builds(m.LatchLost, reasons),
    some.builds(m.LatchVetoed, reasons, some.booleans()),
    some.builds(m.GuardSaid, epochs, verdicts),
    some.builds(m.Drained, epochs),
    some.builds(m.LeaderNodeRefused, reasons),
    some.builds(m.WriteFailed, reasons),
    some.builds(m.Crashed, reasons),
)


class Witness:
    """Watches a history and raises when a law is broken."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self.leads: Leadership | None = None
        self.latch = False
        self.timer = False

    def saw(self, before: State, event: m.Event, after: State, effects: tuple[m.Effect, ...]) -> None:
        if type(before) is not type(after) or event == m.DelayOver():
            self.timer = False
        if event == m.LatchEnded():
            self.latch = False
        for effect in effects:
            self._note(effect, event)
        assert (self.leads is not None) == isinstance(after, m.Leading), "Leading and granted are the same"
        if isinstance(after, m.Closed):
            assert not self.latch, "closed with a latch"

    def _note(self, effect: m.Effect, event: m.Event) -> None:
        match effect:
            case m.AskGuard(epoch):
                self.asked = epoch
            case m.GrantLeadership(leadership):
                assert self.leads is None, "granted twice"
                assert isinstance(event, m.GuardSaid), "granted without the guard"
                assert event.verdict.ready, "granted though the guard said no"
                assert event.epoch == leadership.epoch == self.asked, "granted on another question's answer"
                self.leads = leadership
            case m.Revoke(leadership, _):
                assert self.leads == leadership, "revoked what was not granted"
                self.leads = None
            case m.StartLatch():
                assert not self.latch, "a second latch while the first lives"
                self.latch = True
            case m.CloseLatch():
                assert self.leads is None, "the lock is let go while we lead"
            case m.SetTimer():
                self.timer = True
            case m.Publish() | m.EndCore():
                pass


def hopeful(state: State, epoch: int, *, ready: bool = True, late: bool = False) -> m.Event:
    """The event that brings this state closer to leading, if the guard is `ready` and not `late`.

    A leader, which cannot come closer, publishes: its timer runs out if `late`, a call fails if not `ready`.
    """
    match state:
        case m.Outside() | m.BackingOff():
            return m.AddAsked()
        case m.InLine():
            return m.LatchGained(term(epoch))
        case m.Guarding(leadership):
            return m.GuardSaid(leadership.epoch - late, Verdict(ready))
        case m.Leading():
            return m.DelayOver() if late else m.WatchFired() if ready else m.WriteFailed("x")
        case m.Closed():
            return m.WatchFired()
        case m.Draining(leadership):
            return m.Drained(leadership.epoch)
        case m.Leaving():
            return m.LatchEnded()


def possible(state: State, event: m.Event, latch: bool) -> bool:
    """Whether this event is possible now: a latch that does not exist sends none."""
    if isinstance(event, m.LatchGained):
        return isinstance(state, m.InLine)
    return latch or not isinstance(event, m.LatchEnded | m.LatchLost | m.LatchVetoed)


@given(some.lists(some.tuples(some.integers(0, 4), anything), max_size=60))
@settings(max_examples=examples(800), deadline=None)
def test_whatever_happens_nobody_leads_without_the_guards_yes_in_that_epoch_and_one_latch_lives(
    history: list[tuple[int, m.Event]],
) -> None:
    state: State = m.Outside()
    witness = Witness()
    for number, (luck, chance) in enumerate(history):
        event = hopeful(state, number, ready=luck != 1, late=luck == 2) if luck else chance
        if not possible(state, event, witness.latch):
            continue
        moved = step(state, event)
        witness.saw(state, event, moved.state, moved.effects)
        state = moved.state
        unpublished = isinstance(state, m.Leading) and not state.published
        if unpublished or isinstance(state, m.Guarding | m.Draining | m.BackingOff):
            assert witness.timer, f"{state} waits for nothing"
        if isinstance(state, m.InLine | m.Leaving):
            assert witness.latch, f"{state} without a latch"

    closing = step(state, m.CloseAsked())
    state = closing.state
    for _ in range(5):
        state = step(state, hopeful(state, 99)).state if not isinstance(state, m.Closed) else state
    assert isinstance(state, m.Closed)
