"""Shared by faults: choice of victims, operators' access to nodes, losses that a leader may not notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from leader.core.participant import model as m
from leader.errors import LeaderError
from leader.protocol import requests as rq
from leader.protocol.paths import ElectionPaths
from tests.leader.election.ensemble import Ensemble
from tests.leader.election.history import Kind, Moment
from tests.leader.election.process import Process
from tests.leader.election.session import Weather
from tests.leader.election.world import ZERO, World

Strike = Callable[[], str | None]
"""Injects a fault, and returns the victim; None if there was nothing to do."""

_A_MOMENT = timedelta(milliseconds=40)
"""Time until a message arrives and a pending request is answered, without faults."""


class Run(Protocol):
    """The part of the simulator that faults use."""

    world: World
    ensemble: Ensemble
    paths: ElectionPaths
    highest_epoch: int

    def processes(self) -> list[Process]:
        """The newest process of each participant, alive or not."""
        ...

    def living(self) -> list[Process]:
        """The live processes."""
        ...

    def restart(self, process: Process) -> None:
        """Start the participant of a process again, if it is dead and was not restarted yet."""
        ...

    def lay_out(self) -> None:
        """Create the nodes that exist before any election."""
        ...


class Stage:
    """See the module."""

    def __init__(self, run: Run) -> None:
        self.simulator, self.world, self.ensemble = run, run.world, run.ensemble
        self.rng, self.session = self.world.rng, self.world.session_timeout
        self.strangers: list[str] = []
        """Paths of latches that other clients have put into the queue."""
        self._deposed: dict[Process, tuple[timedelta, timedelta]] = {}

    def anybody(self) -> Process:
        """A victim: in most cases the leader."""
        processes = self.simulator.living()
        if self.world.chance(0.6):
            leading = [one for one in processes if one.core.term.leadership() is not None]
            if leading:
                return leading[0]
        return self.rng.choice(processes)

    def span(self, least: float, most: float) -> timedelta:
        """A random time, in parts of the session timeout."""
        return self.session * self.rng.uniform(least, most)

    def operate(self, request: rq.Write, what: str) -> str | None:
        """Change a node like an operator. Returns None if that is not possible now."""
        if not self.ensemble.serving:
            return None
        try:
            self.ensemble.zookeeper.write(request)
        except LeaderError:
            return None
        return what

    # --- shared by several kinds of faults ----------------------------------------------------------

    def flap(self, victim: Process) -> None:
        """Make the victim's user leave and join repeatedly."""
        at = ZERO
        for _ in range(self.rng.randint(1, 4)):
            victim.later(at, victim.post_event, m.RemoveAsked())
            at += self.span(0, 0.05)
            victim.later(at, victim.post_event, m.AddAsked())
            at += self.span(0, 0.05)

    def clear(self, victim: Process) -> None:
        """Restore its link."""
        victim.session.weather = Weather()
        victim.session.changed_weather()

    def rise(self) -> None:
        """Give the ensemble a quorum."""
        if not self.ensemble.serving:
            self.ensemble.rise()

    def permit(self) -> None:
        """Restore the access lists."""
        self.ensemble.forbidden = None

    # --- losses that a leader may not notice --------------------------------------------------------

    def reborn(self) -> None:
        """Epochs may start again. A participant with an earlier epoch may still be confirmed soon after."""
        self.world.note(Kind.REBORN, until=self.world.clock.now + self.session)

    def depose(self, victim: Process, *, told: bool) -> None:
        """Record that a participant is about to lose its latch or its session.

        Args:
            victim: The participant, whether it leads or not.
            told: True if a watch or the end of the connection notifies it, provided that its link works.
                False: only its deadline ends its leadership.
        """
        now = self.world.clock.now
        connection = victim.session.connection
        free = (
            told
            and victim.session.weather == Weather()
            and not victim.paused
            and victim.mangle is None
            and not victim.has_backlog
            and connection is not None
            and not connection.server.isolated
        )
        told_by = max(now, victim.session.delivered_by) + _A_MOMENT
        until = told_by if free else now + self.session
        self.world.note(Kind.DEPOSED, victim.name, boot=victim.boot, until=until)
        self._deposed[victim] = (now, until)

    def forgive(self) -> None:
        """Record that a deposed participant may not be notified, because of another fault."""
        now = self.world.clock.now
        for victim, (at, until) in self._deposed.items():
            if at < now <= until < at + self.session:
                grace = Moment(at, victim.name, Kind.DEPOSED, until=at + self.session, boot=victim.boot)
                self.world.history.append(grace)


def epoch_in(data: bytes) -> int:
    """The number in the epoch node, without its other content."""
    return int(json.loads(data)["epoch"])
