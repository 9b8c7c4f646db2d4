"""Faults of a simulated participant's connection and of its process."""

from __future__ import annotations

from leader.core.participant import model as m
from leader.protocol import requests as rq
from tests.leader.election.process import Process, Work
from tests.leader.election.session import Trap
from tests.leader.election.stage import Stage, Strike
from tests.leader.election.world import ZERO

_ALL = (rq.Create, rq.Transaction, rq.Delete, rq.GetChildren, rq.Exists, rq.Get, rq.GetEach, rq.SetData)
_TRAPS: tuple[tuple[type, ...], ...] = (
    _ALL,
    (rq.Create,),
    (rq.Create,),
    (rq.Transaction,),
    (rq.Delete, rq.Transaction),
    (rq.GetChildren, rq.Exists),
)


class LinkFaults:
    """See the module. Each fault returns its victim, or None if nothing happened."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def kinds(self) -> list[tuple[Strike, float]]:
        """All faults, with their probabilities."""
        return [
            (self._cut, 3),
            (self._trap, 8),
            (self._black_hole, 5),
            (self._slow_link, 3),
            (self._slow_and_pause, 2),
            (self._pause, 5),
            (self._crash, 4),
            (self._mangle_signals, 4),
        ]

    def _cut(self) -> str | None:
        victim = self._stage.anybody()
        if victim.session.connection is not None:
            victim.session.connection.close()
        return victim.name

    def _trap(self) -> str | None:
        victim = self._stage.anybody()
        victim.session.trap = Trap(self._stage.rng.choice(_TRAPS), self._stage.world.chance(0.6))
        if victim.session.session_id is not None and self._stage.world.chance(0.2):
            self._stage.ensemble.forgotten.add(victim.session.session_id)
        if self._stage.world.chance(0.5):  # most requests are made by a joining participant
            self._jolt(victim)
        return victim.name

    def _black_hole(self) -> str | None:
        victim = self._stage.anybody()
        up, down = self._stage.rng.choice([(True, True), (True, True), (True, False), (False, True)])
        victim.session.weather.up_held, victim.session.weather.down_held = up, down
        victim.session.changed_weather()
        self._stage.world.clock.call_later(self._stage.span(0.1, 2.5), self._stage.clear, victim)
        return victim.name

    def _slow_link(self) -> str | None:
        victim = self._stage.anybody()
        victim.session.weather.slow = self._stage.span(0.02, 0.5)
        self._stage.world.clock.call_later(self._stage.span(0.2, 3), self._stage.clear, victim)
        return victim.name

    def _slow_and_pause(self) -> str | None:
        """Delay answers, then pause the process for most of a session."""
        victim = self._stage.anybody()
        victim.session.weather.slow = self._stage.span(0.2, 0.6)
        until = self._stage.span(0.5, 1)
        self._stage.world.clock.call_later(until, victim.pause)
        self._stage.world.clock.call_later(until + self._stage.span(0.5, 1.2), victim.wake)
        self._stage.world.clock.call_later(until + self._stage.session, self._stage.clear, victim)
        return victim.name

    def _pause(self) -> str | None:
        victim = self._stage.anybody()
        victim.pause()
        self._stage.world.clock.call_later(self._stage.span(0.05, 3), victim.wake)
        return victim.name

    def _crash(self) -> str | None:
        victim = self._stage.anybody()
        victim.crash(power=self._stage.world.chance(0.5))
        self._stage.world.clock.call_later(self._stage.span(0.05, 3), self._stage.simulator.restart, victim)
        return victim.name

    def _mangle_signals(self) -> str | None:
        """Deliver signals late, twice, or in another order."""
        victim = self._stage.anybody()

        def mangle(work: Work, of_session: bool) -> None:
            del of_session
            copies = 2 if self._stage.world.chance(0.2) else 1
            for _ in range(copies):
                late = self._stage.span(0, 0.3) if self._stage.world.chance(0.5) else ZERO
                victim.later(late, victim.post, work)

        def stop() -> None:
            victim.mangle = None

        victim.mangle = mangle
        self._stage.world.clock.call_later(self._stage.span(0.5, 3), stop)
        return victim.name

    def _jolt(self, victim: Process) -> None:
        """Cause a request soon."""
        if self._stage.world.chance(0.4):
            victim.post_event(m.AbdicationAsked("asked to", at_once=True))
        elif self._stage.world.chance(0.6):
            self._stage.flap(victim)
        elif victim.session.session_id is not None:
            self._stage.depose(victim, told=True)
            self._stage.ensemble.zookeeper.close_session(victim.session.session_id)
